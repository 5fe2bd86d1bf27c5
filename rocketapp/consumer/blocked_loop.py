"""Names the line of a handler that blocks the event loop.

While the loop is blocked nothing of this process runs: no heartbeat, no renewal of a lock,
no other handler. A daemon thread sees that the loop has not ticked for some seconds and
looks where it stands; the loop reports it as soon as it runs again.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from rocketapp.consumer.workers.async_workers import AsyncWorkers
from rocketapp.consumer.workers.serial import SerialOnLoop
from rocketapp.model.event import LoopBlocked, Observe
from rocketapp.user_line import file_of, place_of_frame

BLOCKED_AFTER = 5.0
"""Seconds without a tick after which the loop counts as blocked."""
_EXECUTORS = (AsyncWorkers._drain.__code__, SerialOnLoop.run.__code__)
"""The code that calls async handlers; its `self` knows which handler."""


class BlockedLoop:
    """Watches one event loop on behalf of all consumers of an app."""

    def __init__(
        self, observe: Observe, *, after: float = BLOCKED_AFTER, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._observe, self._after, self._now = observe, after, now
        self._consumers: set[int] = set()
        self._stopped = threading.Event()
        self._ticked = 0.0
        self._blocked_at: tuple[str, str] | None = None
        """Place and handler, once the loop was found blocked. Written by the thread, taken by the loop."""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<BlockedLoop of {len(self._consumers)} consumers>"

    def join(self, consumer: object) -> None:
        """This consumer starts on the running loop; the first one starts the watch.

        A loop whose time is not the clock's, as that of a simulation, is not watched.
        """
        loop, is_first = asyncio.get_running_loop(), not self._consumers
        self._consumers.add(id(consumer))
        if not is_first or abs(loop.time() - self._now()) > 1.0:
            return
        self._stopped = threading.Event()
        self._ticked = self._now()
        self._timer = loop.call_later(self._after / 5, self._tick, loop)
        arguments = self._stopped, loop, threading.get_ident()
        threading.Thread(target=self._watch, args=arguments, name="blocked loop", daemon=True).start()

    def leave(self, consumer: object) -> None:
        """This consumer has stopped; the last one stops the watch."""
        self._consumers.discard(id(consumer))
        if not self._consumers:
            self._stopped.set()
            if self._timer is not None:
                self._timer.cancel()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = self._now()
        if (found := self._blocked_at) is not None:
            self._blocked_at = None
            self._observe(LoopBlocked(now - self._ticked, *found))
        self._ticked = now
        self._timer = loop.call_later(self._after / 5, self._tick, loop)

    def _watch(self, stopped: threading.Event, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        """In a thread. A loop that was closed without a stop ends it too."""
        while not stopped.wait(self._after / 5) and not loop.is_closed():
            if self._blocked_at is None and self._now() - self._ticked >= self._after:
                frame = sys._current_frames().get(loop_thread)
                place, handler = _place(frame)
                # A process that was frozen stands in the loop itself: no line is to blame.
                if place:
                    self._blocked_at = place, handler


def _place(frame: FrameType | None) -> tuple[str, str]:
    """The user's line in which the loop stands, and the handler it belongs to; "" for what is not known."""
    handler, home, at = "", "", frame
    while at is not None and not handler:
        if at.f_code in _EXECUTORS:
            executor: Any = at.f_locals["self"]
            handler, home = executor.handler.name, file_of(executor.handler.subscription)
        at = at.f_back
    return place_of_frame(frame, home), handler
