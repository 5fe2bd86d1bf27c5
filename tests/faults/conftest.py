"""Prints the figures of the fault runs at the end of the session."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

Tell = Callable[[dict[str, Any]], dict[str, Any]]
_figures: list[tuple[str, dict[str, Any]]] = []


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
