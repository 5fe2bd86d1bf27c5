"""Names the line of a handler that blocks the event loop.

While the loop is blocked nothing of this process runs: no heartbeat, no renewal of a lock,
no other handler. A daemon thread sees that the loop has not ticked for some seconds, looks
where it stands, and reports that; the loop reports how long it was as soon as it runs again.
Code that keeps the interpreter to itself, such as a regular expression, lets that thread run only when a signal
interrupts it.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from dataclasses import replace
from types import FrameType

from rocketapp.consumer.workers.on_loop import LoopWorkers
from rocketapp.model.event import LoopBlocked, Observe
from rocketapp.user_line import file_of, place_of_frame, stack_of_frame

BLOCKED_AFTER = 4.0
"""Seconds without a tick after which the loop counts as blocked: it is named before 5 are over."""
_LOOKS = 8
"""Ticks and looks within that time."""
_CALLS_HANDLERS = (LoopWorkers._side_by_side.__code__, LoopWorkers._one_by_one.__code__)
"""The code that calls async handlers; its `taker` knows which handler."""


class BlockedLoop:
    """Watches one event loop on behalf of an app."""

    def __init__(self, observe: Observe, *, after: float = BLOCKED_AFTER) -> None:
        """`after`: seconds without a tick from which on the loop counts as blocked."""
        self._observe, self._after = observe, after
        self._stopped = threading.Event()
        self._ticked = 0.0
        self._found: LoopBlocked | None = None
        """Once the loop was found blocked. Written by the thread, taken by the loop."""
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"<BlockedLoop{'' if self._timer is None else ': watched'}>"

    def start(self) -> None:
        """Watch the running loop. One whose time is not the clock's, as that of a simulation, is not watched."""
        loop = asyncio.get_running_loop()
        if abs(loop.time() - time.monotonic()) > 1.0:
            return
        self._ticked = time.monotonic()
        self._timer = loop.call_later(self._after / _LOOKS, self._tick, loop)
        arguments = self._stopped, loop, threading.get_ident()
        threading.Thread(target=self._watch, args=arguments, name="blocked loop", daemon=True).start()

    def stop(self) -> None:
        """Watch it no more."""
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        if (found := self._found) is not None:
            self._found = None
            self._observe(replace(found, seconds=max(found.seconds, now - self._ticked), is_over=True))
        self._ticked = now
        self._timer = loop.call_later(self._after / _LOOKS, self._tick, loop)

    def _watch(self, stopped: threading.Event, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        """In a thread. A loop that was closed without a stop ends it too."""
        interval = self._after / _LOOKS
        looked, computed = time.monotonic(), time.process_time()
        frozen_until = looked
        while not stopped.wait(interval) and not loop.is_closed():
            now, computed_now = time.monotonic(), time.process_time()
            if now - looked >= self._after and computed_now - computed <= interval:
                # No thread ran, this one neither: the process was frozen, and not by a line of code.
                frozen_until = now
            looked, computed = now, computed_now
            seconds = now - max(self._ticked, frozen_until)
            if self._found is None and seconds >= self._after:
                found = _found(sys._current_frames().get(loop_thread), seconds)
                # After a freeze the loop may stand in itself: no line is to blame.
                if found is not None:
                    # In this order, or the loop may tell that it is over before this has told that it began.
                    self._observe(found)
                    self._found = found


def _found(frame: FrameType | None, seconds: float) -> LoopBlocked | None:
    """The user's line in which the loop stands, and the handler it belongs to; None when it stands in none."""
    handler, home, at = "", "", frame
    while at is not None and not handler:
        if at.f_code in _CALLS_HANDLERS and (taker := at.f_locals.get("taker")) is not None:
            handler, home = taker.handler.name, file_of(taker.handler.subscription)
        at = at.f_back
    place = place_of_frame(frame, home)
    if not place:
        return None
    return LoopBlocked(seconds, place, handler, is_over=False, stack=stack_of_frame(frame, home))
