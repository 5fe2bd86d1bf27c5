"""Wait for a condition with a deadline. Nothing in the tests sleeps for a fixed time and hopes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
BUSY = 5.0
"""How many times longer a busy machine may take than an idle one. Only a test that fails waits for that."""


def wait_until(condition: Callable[[], T], *, within: float, what: str | Callable[[], str], every: float = 0.02) -> T:
    """Ask `condition` every few milliseconds until it is true; return what it said.

    within: seconds on an idle machine; a busy one has BUSY times as long. Raises AssertionError naming `what` was
    awaited when they have passed.
    """
    within *= BUSY
    deadline = time.monotonic() + within
    pause = threading.Event()
    while True:
        answer = condition()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            text = what() if callable(what) else what
            raise AssertionError(f"not within {within:g} s: {text} (last answer: {answer!r})")
        pause.wait(every)


def holds_for(
    condition: Callable[[], bool], *, seconds: float, what: str | Callable[[], str], every: float = 0.05
) -> None:
    """Assert that a condition stays true for so long: for what must not happen."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < deadline:
        assert condition(), what() if callable(what) else what
        pause.wait(every)
