"""What every test of telemetry leaves behind: nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def exporters_have_ended() -> Iterator[None]:
    """The stop of an app does not wait for exporters of a dead collector, and later tests must not run beside them."""
    yield
    for thread in threading.enumerate():
        if thread.name == "telemetry ends":
            thread.join(30)
            assert not thread.is_alive()
