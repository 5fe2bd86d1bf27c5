"""Calls that are repeated at an interval while an app runs: `Surface.every`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketapp.app.run.plugin_failures import PluginFailures


class Periodic:
    """Owns the timers. It makes no task, so `stop` need not be awaited."""

    def __init__(self) -> None:
        self._calls: list[tuple[float, Callable[[], None]]] = []
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._failures = PluginFailures()

    def add(self, seconds: float, call: Callable[[], None]) -> None:
        """Repeat the call every `seconds`, from the start on, or from now when the app runs already."""
        if seconds <= 0:
            raise ValueError(f"every({seconds}): seconds are more than 0")
        self._calls.append((seconds, call))
        if self._loop is not None:
            self._arm(len(self._calls) - 1)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        for number in range(len(self._calls)):
            self._arm(number)

    def stop(self) -> None:
        """End the timers, and make each call a last time."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._loop = None
        for _, call in self._calls:
            self._call(call)
        self._calls.clear()

    def _arm(self, number: int) -> None:
        if self._loop is not None:
            self._timers[number] = self._loop.call_later(self._calls[number][0], self._due, number)

    def _due(self, number: int) -> None:
        self._call(self._calls[number][1])
        self._arm(number)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            self._failures.tell("a plugin", "a periodic call", error)
