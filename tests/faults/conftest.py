"""A broker of their own, which they may restart, and the figures of the fault runs at the end of the session."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import need_java
from tests.peers.clusters import Apache, of_tests

Tell = Callable[[dict[str, Any]], dict[str, Any]]
_figures: list[tuple[str, dict[str, Any]]] = []


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    """Apache RocketMQ 5.5.0, from the first fault run to the last."""
    need_java()
    broker = of_tests(tmp_path_factory.mktemp("apache"))
    yield broker
    broker.stop()


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Tell:
    """Keep a run's figures for the end of the session, and return them."""

    def keep(figures: dict[str, Any]) -> dict[str, Any]:
        _figures.append((request.node.name, figures))
        return figures

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for name, figures in _figures:
        terminalreporter.write_line(f"FIGURES {name}: {json.dumps(figures)}")
