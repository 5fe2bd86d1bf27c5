"""An event loop whose clock jumps to the next timer.

An hour of long polls, leases and retries takes a blink, and is the same every run:
nothing that runs on it needs a socket or the real clock, so the order of callbacks
depends on the program and its seed alone.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import TypeVar

from rocketapp.wire.message import MADE_MS

T = TypeVar("T")


_TURNS, _TICK = 1000, 1e-9
"""After this number of turns at one moment the clock moves by one tick, which is asyncio's resolution: timers fire up
to a tick early, so loops that compare their time with the clock turn at once until the clock has reached it."""
EPOCH = MADE_MS / 1000
"""Seconds since 1970 at which virtual time begins, unless told otherwise."""


class StandstillError(RuntimeError):
    """Every task waits and no timer is set: in real life the program would hang here."""


class _JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for `timeout` seconds, lets them have passed."""

    def __init__(self, advance: Callable[[float | None], None], tick: Callable[[], None]) -> None:
        super().__init__()
        self._advance, self._tick = advance, tick
        self._turns = 0
        self.looks = True
        """Whether it looks for what has arrived at every turn."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0) if self.looks else []
        if ready or timeout == 0:
            self._turns += 1
            if self._turns > _TURNS:
                self._turns = 0
                self._tick()
            return ready
        self._turns = 0
        self._advance(timeout)
        return []

    def wait(self, seconds: float) -> bool:
        """Wait in real time; whether something arrived. It is still there for the next `select`."""
        return bool(super().select(seconds))


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop that begins at second 0 and never waits."""

    def __init__(self) -> None:
        self._virtual_now = 0.0
        self._jumping = _JumpingSelector(self._advance, self._tick)
        super().__init__(self._jumping)
        # Behind 194 days two neighbouring seconds of a float are farther apart than the real clock's resolution, so
        # that a timer at this very moment would never be due.
        self._clock_resolution = 1e-7

    def time(self) -> float:
        return self._virtual_now

    def _advance(self, seconds: float | None) -> None:
        """Nothing is to be done for so long; None: until something arrives."""
        if seconds is None:
            raise StandstillError("every task waits for another and no timer is set")
        self._virtual_now += max(seconds, 0.0)

    def _tick(self) -> None:
        self._virtual_now += _TICK

    def stand_still(self, seconds: float) -> None:
        """Let time pass at once, as when a callback computes or the process is frozen: timers come late."""
        self._virtual_now += seconds


class VirtualClock:
    """The time of day that belongs to a virtual loop; may be told to jump."""

    def __init__(self, loop: asyncio.AbstractEventLoop, epoch: float = EPOCH) -> None:
        self._loop = loop
        self.epoch: float = epoch

    def now(self) -> float:
        return self.epoch + self._loop.time()
