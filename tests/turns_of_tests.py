"""A test that runs a second time runs alone: the processes of a test run share one lock.

What drives real processes may fail on a busy machine because one of them was kept from running. It would fail again
beside the same others; alone it shows what it is.
"""

from __future__ import annotations

import fcntl
from collections.abc import Generator
from pathlib import Path

import pytest


class Turns:
    """One of the processes of a test run. Each test holds a share of the lock; one that is repeated holds all of it."""

    def __init__(self, place: Path) -> None:
        """`place`: a directory that all processes of the run have in common."""
        self._gate = (place / "turns.gate").open("w")
        self._lock = (place / "turns.lock").open("w")

    def take(self, *, alone: bool) -> None:
        """Wait for a share, or until no other test runs; meanwhile no other one begins."""
        fcntl.flock(self._lock, fcntl.LOCK_UN)
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def give_back(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    # As a plugin, not as hooks of a conftest: those see the tests of their own directory only.

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        # Outside the time limit of the test: waiting for one that runs alone is not its own time.
        self.take(alone=False)
        try:
            return (yield)
        finally:
            self.give_back()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if getattr(item, "execution_count", 1) > 1:
            self.take(alone=True)

    def close(self) -> None:
        self._gate.close()
        self._lock.close()
