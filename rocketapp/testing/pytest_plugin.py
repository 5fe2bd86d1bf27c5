"""Fixtures for pytest, by the entry point group `pytest11`: nothing but their names until a test asks for one.

test_app          makes apps under test that are stopped at the end of the test, in tests without a loop
rocketapp_broker  the address of a real embedded broker on loopback, in memory, on a thread of its own
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.testing.app import StartTestApp, TestedApp


@pytest.fixture
def test_app() -> Iterator[StartTestApp]:
    """`t = test_app(app, settings=..., overrides=...)`: as `with TestApp(app) as t`, until the test ends."""
    from rocketapp.testing.app import TestApp

    with ExitStack() as running:

        def start(app: RocketApp, **options: Any) -> TestedApp:
            return running.enter_context(TestApp(app, **options))

        yield start


@pytest.fixture(scope="session")
def rocketapp_broker() -> Iterator[str]:
    """`host:port` of a broker with its name server that any RocketMQ client can reach; one for the whole run."""
    from rocketapp.testing.broker import serving

    with serving() as address:
        yield address
