"""Collects messages of one queue into batches: full ones, or those that came in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rocketapp.wire.record import Message


class Batches:
    """Hands over lists of at most `most` messages; a message waits `wait` seconds at the longest."""

    def __init__(self, most: int, wait: float, hand_over: Callable[[list[Message]], None]) -> None:
        self._most, self._wait, self._hand_over = most, wait, hand_over
        self._pending: list[Message] = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, messages: Sequence[Message]) -> None:
        """Messages in offset order."""
        self._pending += messages
        self._hand_over_full()

    def resize(self, most: int) -> None:
        """Another most holds from now on."""
        self._most = most
        self._hand_over_full()

    def close(self) -> list[Message]:
        """Hand over nothing more, and return the messages that are left."""
        left, self._pending = self._pending, []
        self._stop_timer()
        return left

    def _hand_over_full(self) -> None:
        while len(self._pending) >= self._most:
            self._flush()
        if self._pending and self._timer is None:
            self._timer = self._loop.call_later(self._wait, self._flush)

    def _flush(self) -> None:
        self._stop_timer()
        batch, self._pending = self._pending[: self._most], self._pending[self._most :]
        if batch:
            self._hand_over(batch)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
