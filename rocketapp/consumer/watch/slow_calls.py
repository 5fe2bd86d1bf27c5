"""Warns of calls that run for very long or block the event loop, and says where they stand: the user's line.

Lines are looked for only when there is such a call, since every task of the loop and every thread of the process is
looked at. With `send_back_slow`, messages of concurrent handlers are also sent back, as Java's client does it: they
block their queue no more, the call goes on, and what becomes of it does not matter any more.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from rocketapp.consumer.handler import Handler, first_of, messages_of
from rocketapp.consumer.member import Member
from rocketapp.consumer.modes.table import Modes
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.workers.in_threads import ThreadWorkers
from rocketapp.consumer.workers.on_loop import LoopWorkers
from rocketapp.model.event import HandlerSlow, LoopBlocked, Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.redelivery import Failure
from rocketapp.user_line import file_of, place_of_frame, stack_of_frame

_LONG_RUNNING = 10.0
"""Seconds after which a running call is a reason for a queue to be blocked; less when the warning comes sooner."""
_WARNINGS = 2
"""Warnings about one call: after the time of the setting, and after twice as long."""
_SENT_BACK_AT_ONCE, _SENT_BACK_DELAY = 16, 10.0
"""Messages of one queue that are sent back at one look, and seconds until they come back: level 3 (Java: the same)."""
_NAMES = 5
"""Names that are shown of tasks and threads that stand at the same place."""
BLOCKED_AFTER = 4.0
"""Seconds without a tick after which the loop counts as blocked: it is named before 5 are over."""
_TICKS = 8
"""Ticks of the loop, and looks at it, within that time."""


@dataclass(slots=True)
class _Running:
    """A call that is running."""

    handler: Handler
    item: Any
    since: float
    warned: int = 0
    """How many warnings have been given."""
    is_sent_back: bool = False


class SlowCalls:
    """Measures how long the calls of one group have been running."""

    def __init__(self, member: Member, modes: Modes, redelivery: Redelivery) -> None:
        self._member, self._modes, self._redelivery = member, modes, redelivery
        self._warning = member.config.handler_warning
        self._now = asyncio.get_running_loop().time
        self.counts: Counter[tuple[str, str]] = Counter()
        """By handler and topic the calls that were warned about, since the start."""
        self._seen: dict[int, _Running] = {}
        """By the identity of their items the calls that ran at the last look."""

    def __repr__(self) -> str:
        return f"<SlowCalls of {self._member.name}: {len(self._seen)} seen>"

    def running_long(self) -> dict[MessageQueue, str]:
        """The queues that wait for a long call, and for which one."""
        now = self._now()
        limit = min(_LONG_RUNNING, self._warning)
        known = ((self._seen.get(id(item)), item) for _, item in self._modes.callers.in_flight())
        long = [one for one, item in known if one is not None and one.item is item and now - one.since >= limit]
        found: dict[MessageQueue, str] = {}
        places = places_of_calls() if long else {}
        for one in long:
            queue = first_of(one.item).queue
            if queue is not None and queue not in found:
                found[queue] = self._slow(one, now, places).text
        return found

    def look(self) -> None:
        """Warn of calls that have become too long since the last look. Call it once a second."""
        now, before = self._now(), self._seen
        self._seen = {}
        for handler, item in self._modes.callers.in_flight():
            if handler.runs_here:  # otherwise it waits for another member, which watches its own call
                known = before.get(id(item))
                is_same = known is not None and known.item is item
                self._seen[id(item)] = known if known is not None and is_same else _Running(handler, item, now)
        expired = [one for one in self._seen.values() if now - one.since >= self._warning]
        late = [one for one in expired if one.warned < min(_WARNINGS, (now - one.since) // self._warning)]
        # Once for all of them: it looks at every task, and a thousand calls may be late at the same moment.
        places = places_of_calls() if late else {}
        for one in late:
            self.counts[one.handler.name, one.handler.subscription.topic] += not one.warned
            one.warned += 1
            self._member.observe(self._slow(one, now, places))
        if expired and self._member.config.send_back_slow:
            self._send_back(expired, now)

    def _send_back(self, expired: Iterable[_Running], now: float) -> None:
        """Send back the messages of these calls, lowest offset first. Only concurrent ones; others keep their order."""
        counts: Counter[MessageQueue] = Counter()
        for one in sorted(expired, key=lambda one: first_of(one.item).offset):
            queue = first_of(one.item).queue
            owned = None if queue is None else self._member.owned.get(queue)
            process_queue = None if owned is None else owned.process_queue
            is_concurrent = queue is not None and self._modes.of(queue.topic) is self._modes.concurrent
            if queue is None or process_queue is None or not is_concurrent or one.is_sent_back:
                continue
            if counts[queue] < _SENT_BACK_AT_ONCE:
                one.is_sent_back = True
                messages = [message for message in messages_of(one.item) if process_queue.holds(message)]
                counts[queue] += len(messages)
                text = f"its handler has been running for {now - one.since:.0f} s"
                for message in messages:
                    failure = Failure("TimeoutError", text, after=_SENT_BACK_DELAY)
                    self._redelivery.fail(one.handler, process_queue, message, failure)

    def _slow(self, one: _Running, now: float, places: Mapping[int, str]) -> HandlerSlow:
        message, place = first_of(one.item), places.get(id(one.item), "")
        handler, seconds = one.handler.name, now - one.since
        return HandlerSlow(self._member.name, handler, message.topic, message.message_id, seconds, place)


class BlockedLoop:
    """Watches one event loop on behalf of an app, and names the line of a handler that blocks it.

    While the loop is blocked nothing of this process runs: no heartbeat, no renewal of a lock, no other handler. A
    daemon thread sees that the loop has not ticked for some seconds, looks where it stands, and reports that; the loop
    reports how long it was as soon as it runs again. Code that keeps the interpreter to itself, such as a regular
    expression, lets that thread run only when a signal interrupts it.
    """

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
        self._timer = loop.call_later(self._after / _TICKS, self._tick, loop)
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
        self._timer = loop.call_later(self._after / _TICKS, self._tick, loop)

    def _watch(self, stopped: threading.Event, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        """In a thread. A loop that was closed without a stop ends it too."""
        interval = self._after / _TICKS
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
        if at.f_code in _CALLERS and (taker := at.f_locals.get("taker")) is not None:
            handler, home = taker.handler.name, file_of(taker.handler.subscription)
        at = at.f_back
    place = place_of_frame(frame, home)
    if not place:
        return None
    return LoopBlocked(seconds, place, handler, is_over=False, stack=stack_of_frame(frame, home))


# Where tasks and threads stand.

_CALLERS = (LoopWorkers._call_messages.__code__, ThreadWorkers._call_messages.__code__)
"""The code that calls handlers; its `item` is what it calls one with, its `taker` knows which handler."""


def places_of_calls() -> dict[int, str]:
    """By the id of an item, `file:line` where the call for it stands. On the event loop."""
    found: dict[int, str] = {}
    for _, frames in _all_frames():
        number = next((at for at, frame in enumerate(frames) if frame.f_code in _CALLERS), len(frames))
        inner = frames[number + 1 :]
        if place := next((place for one in reversed(inner) if (place := place_of_frame(one, ""))), ""):
            found[id(frames[number].f_locals.get("item"))] = place
    return found


def stacks() -> str:
    """The stacks of all threads and of all tasks of the running loop; those that stand alike are shown once."""
    found: dict[str, list[str]] = {}
    for who, frames in _all_frames():
        found.setdefault(_stack(frames), []).append(who)
    return "\n".join(f"{_title(sorted(who))}\n{stack}" for stack, who in found.items())


def _all_frames() -> Iterator[tuple[str, list[FrameType]]]:
    """Where each thread stands, then each task of the running loop: the outermost frame first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, innermost in sys._current_frames().items():
        yield f"thread {names.get(ident, ident)}", [frame for frame, _ in traceback.walk_stack(innermost)][::-1]
    for task in asyncio.all_tasks():
        yield f"task {task.get_name()}", list(frames_of_coroutine(task.get_coro()))


def frames_of_coroutine(waiting: Any) -> Iterator[FrameType]:
    """The frames of a coroutine that is suspended, and of those that it awaits: the outermost first."""
    while waiting is not None:
        kind = next((kind for kind in ("cr", "gi", "ag") if hasattr(waiting, f"{kind}_frame")), None)
        if kind is None:
            return
        frame = getattr(waiting, f"{kind}_frame")
        if frame is not None:
            yield frame
        waiting = getattr(waiting, "gi_yieldfrom" if kind == "gi" else f"{kind}_await", None)


def _stack(frames: Iterable[FrameType]) -> str:
    summary = traceback.StackSummary.extract(((frame, frame.f_lineno) for frame in frames), lookup_lines=False)
    return "".join(f"    at {line.name} ({line.filename}:{line.lineno})\n" for line in reversed(summary))


def _title(who: list[str]) -> str:
    more = len(who) - _NAMES
    return ", ".join(who[:_NAMES]) + (f" and {more} more" if more > 0 else "") + ":"
