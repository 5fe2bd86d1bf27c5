"""Warns of calls that run for very long, and says where they stand: the user's line, in a task or in a thread.

Lines are looked for only when there is such a call, since every task of the loop and every thread of the process is
looked at. With `send_back_slow`, messages of concurrent handlers are also sent back, as Java's client does it: they
hold up their queue no more, the call goes on, and what becomes of it does not matter any more.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.items import Item, first_of, messages_of
from rocketapp.consumer.member import Member
from rocketapp.consumer.modes.table import Modes
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.workers.in_threads import ThreadWorkers
from rocketapp.consumer.workers.on_loop import LoopWorkers
from rocketapp.model.event import HandlerSlow
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.redelivery import Failure
from rocketapp.user_line import place_of_frame

_SWEEP_INTERVAL = 10.0
"""Seconds between looks at how long calls have been running; less when the warning comes sooner."""
_LONG_RUNNING = 10.0
"""Seconds after which a running call is a reason for a queue to be blocked; less when the warning comes sooner."""
_WARNINGS = 2
"""Warnings about one call: after the time of the setting, and after twice as long."""
_SENT_BACK_AT_ONCE, _SENT_BACK_DELAY = 16, 10.0
"""Messages of one queue that are sent back in one sweep, and seconds until they come back: level 3 (Java: the same)."""
_NAMES = 5
"""Names that are shown of tasks and threads that stand at the same place."""
_Call = tuple[Handler, Any, float]
"""Handler, item and seconds of a call."""


@dataclass(slots=True)
class _Seen:
    item: Any
    since: float
    warned: int = 0
    """How many warnings have been given."""
    is_sent_back: bool = False


class SlowCalls:
    """Watches how long the calls of one group have been running."""

    def __init__(self, member: Member, modes: Modes, redelivery: Redelivery) -> None:
        self._member, self._modes, self._redelivery = member, modes, redelivery
        self._warning = member.config.handler_warning
        self._now = asyncio.get_running_loop().time
        self.counts: Counter[str] = Counter()
        """By handler the calls that were warned about, since the start."""
        self._seen: dict[int, _Seen] = {}
        self._next_sweep = 0.0

    def __repr__(self) -> str:
        return f"<SlowCalls of {self._member.name}: {len(self._seen)} seen>"

    def running_long(self) -> dict[MessageQueue, str]:
        """Queues that wait for a call that has been running for some time, and which call."""
        now = self._now()
        limit = min(_LONG_RUNNING, self._warning)
        known = [(handler, item, self._seen.get(id(item))) for handler, item in self._modes.in_flight()]
        long = [
            (handler, item, now - seen.since)
            for handler, item, seen in known
            if seen is not None and seen.item is item and now - seen.since >= limit
        ]
        found: dict[MessageQueue, str] = {}
        places = places_of_calls() if long else {}
        for handler, item, seconds in long:
            queue = first_of(item).queue
            if queue is not None and queue not in found:
                found[queue] = self._slow(handler, item, seconds, places).text
        return found

    def look(self) -> None:
        """Once a second: warn of what has run for too long since the last look."""
        now = self._now()
        if now >= self._next_sweep:
            self._next_sweep = now + min(_SWEEP_INTERVAL, self._warning / 2)
            self._sweep(now)
        elif self._seen:
            # A call that has ended must not keep its messages in memory.
            items = {id(item): item for _, item in self._modes.in_flight()}
            self._seen = {key: seen for key, seen in self._seen.items() if items.get(key) is seen.item}

    def _sweep(self, now: float) -> None:
        seen: dict[int, _Seen] = {}
        expired: list[_Call] = []
        late: list[_Call] = []
        for handler, item in self._modes.in_flight():
            known = self._seen.get(id(item))
            if known is None or known.item is not item:
                known = _Seen(item, now)
            seen[id(item)] = known
            seconds = now - known.since
            if seconds < self._warning:
                continue
            expired.append((handler, item, seconds))
            if known.warned < _WARNINGS and seconds >= self._warning * (known.warned + 1):
                self.counts[handler.name] += not known.warned
                known.warned += 1
                late.append((handler, item, seconds))
        self._seen = seen
        # Once for all of them: it looks at every task, and a thousand calls may be late at the same moment.
        places = places_of_calls() if late else {}
        for handler, item, seconds in late:
            self._member.observe(self._slow(handler, item, seconds, places))
        if expired and self._member.config.send_back_slow:
            self._send_back(expired)

    def _send_back(self, expired: Iterable[_Call]) -> None:
        """Send back the messages of these calls, the lowest first; those of other modes keep their order."""
        concurrent = {id(item) for _, item in self._modes.concurrent.in_flight()}
        counts: Counter[MessageQueue] = Counter()
        for handler, item, seconds in sorted(expired, key=lambda call: first_of(call[1]).offset):
            queue, seen = first_of(item).queue, self._seen[id(item)]
            owned = None if queue is None else self._member.owned.get(queue)
            process_queue = None if owned is None else owned.process_queue
            if queue is None or process_queue is None or id(item) not in concurrent or seen.is_sent_back:
                continue
            if counts[queue] < _SENT_BACK_AT_ONCE:
                seen.is_sent_back = True
                messages = [message for message in messages_of(item) if process_queue.holds(message)]
                counts[queue] += len(messages)
                text = f"its handler has been running for {seconds:.0f} s"
                for message in messages:
                    failure = Failure("TimeoutError", text, after=_SENT_BACK_DELAY)
                    self._redelivery.fail(handler, process_queue, message, failure)

    def _slow(self, handler: Handler, item: Item, seconds: float, places: Mapping[int, str]) -> HandlerSlow:
        message, place = first_of(item), places.get(id(item), "")
        return HandlerSlow(self._member.name, handler.name, message.topic, message.message_id, seconds, place)


# Where tasks and threads stand.

_CALLERS = (
    LoopWorkers._side_by_side.__code__,
    LoopWorkers._one_by_one.__code__,
    ThreadWorkers._side_by_side.__code__,
    ThreadWorkers._one_by_one.__code__,
)
"""The code that calls handlers; its `item` is what it calls one with."""


def places_of_calls() -> dict[int, str]:
    """By the id of an item, `file:line` where the call for it stands. On the event loop."""
    found: dict[int, str] = {}
    for task in asyncio.all_tasks():
        _note(found, list(frames_of_coroutine(task.get_coro())))
    for frame in sys._current_frames().values():
        _note(found, list(frames_of_thread(frame))[::-1])
    return found


def _note(found: dict[int, str], frames: list[FrameType]) -> None:
    """`frames`: the outermost first."""
    for number, frame in enumerate(frames):
        if frame.f_code in _CALLERS:
            inner = frames[number + 1 :]
            place = next((place for one in reversed(inner) if (place := place_of_frame(one, ""))), "")
            if place:
                found[id(frame.f_locals.get("item"))] = place
            return


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


def frames_of_thread(frame: FrameType | None) -> Iterator[FrameType]:
    """This frame and those that called it."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def stacks() -> str:
    """The stacks of all threads, then of all tasks of the running loop; those that stand alike are shown once."""
    found: dict[str, list[str]] = {}
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():
        stack = _stack(list(frames_of_thread(frame))[::-1])
        found.setdefault(stack, []).append(f"thread {names.get(ident, ident)}")
    for task in asyncio.all_tasks():
        stack = _stack(frames_of_coroutine(task.get_coro()))
        found.setdefault(stack, []).append(f"task {task.get_name()}")
    return "\n".join(f"{_title(sorted(who))}\n{stack}" for stack, who in found.items())


def _stack(frames: Iterable[FrameType]) -> str:
    summary = traceback.StackSummary.extract(((frame, frame.f_lineno) for frame in frames), lookup_lines=False)
    return "".join(f"    at {line.name} ({line.filename}:{line.lineno})\n" for line in reversed(summary))


def _title(who: list[str]) -> str:
    more = len(who) - _NAMES
    return ", ".join(who[:_NAMES]) + (f" and {more} more" if more > 0 else "") + ":"
