"""Looks once a second at what handlers do: counts what they finished, and warns of those that take very long."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.consumer.stats import HandlerStats
from rocketapp.model import event as events
from rocketapp.model.event import Handled, HandlerSlow, LoopFailed, Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.record import Message

_LOOK = 1.0
"""Seconds between counts."""
_SWEEP = 10.0
"""Seconds between looks at how long handlers have been running; less when the warning comes sooner."""
_LONG = 10.0
"""Seconds after which a running handler is a reason for a queue to stand still."""


@dataclass(slots=True)
class _Seen:
    item: Any
    since: float
    warned: bool = False


class Unmatched:
    """Messages that no handler subscribes to, by topic."""

    def __init__(self) -> None:
        self.by_topic: dict[str, int] = {}

    def count(self, topic: str, count: int) -> None:
        """Add messages of one topic."""
        self.by_topic[topic] = self.by_topic.get(topic, 0) + count


class Watch:
    """Counts and warnings of one group."""

    def __init__(
        self,
        *,
        group: str,
        all_stats: Iterable[HandlerStats],
        in_hand: Callable[[], list[tuple[HandlerStats, Any]]],
        unmatched: Unmatched,
        stall_reasons: StallReasons,
        warning: float,
        observe: Observe,
    ) -> None:
        """`warning`: seconds after which a running handler is warned about."""
        self._group, self._all_stats, self._in_hand = group, list(all_stats), in_hand
        self._unmatched, self._stall_reasons = unmatched, stall_reasons
        self._warning, self._observe = warning, observe
        self._loop = asyncio.get_running_loop()
        self._seen: dict[int, _Seen] = {}
        self._next_sweep = 0.0
        self._told_unmatched: dict[str, int] = {}

    def running_long(self) -> dict[MessageQueue, str]:
        """Queues that wait for a handler that has been running for some time, and for which."""
        now = self._loop.time()
        found: dict[MessageQueue, str] = {}
        for stats, item in self._in_hand():
            seen, message = self._seen.get(id(item)), first_of(item)
            if seen is not None and seen.item is item and now - seen.since >= _LONG and message.queue is not None:
                text = f"handler {stats.name} has been running for {now - seen.since:.0f} s on {message!r}"
                found.setdefault(message.queue, text)
        return found

    async def run(self) -> None:
        """Look for ever."""
        while True:
            await asyncio.sleep(_LOOK)
            try:
                self.look()
            except Exception as error:
                self._observe(LoopFailed("watch", f"{type(error).__name__}: {error}"))

    def look(self) -> None:
        """Tell what is new since the last look."""
        self._stall_reasons.tell()
        for stats in self._all_stats:
            if count := stats.handled - stats.reported:
                stats.reported = stats.handled
                self._observe(Handled(self._group, stats.name, stats.handler.subscription.topic, count))
        for topic, total in self._unmatched.by_topic.items():
            if count := total - self._told_unmatched.get(topic, 0):
                self._told_unmatched[topic] = total
                self._observe(events.Unmatched(self._group, topic, count))
        now = self._loop.time()
        if now >= self._next_sweep:
            self._next_sweep = now + min(_SWEEP, self._warning / 2)
            self._sweep(now)

    def _sweep(self, now: float) -> None:
        seen: dict[int, _Seen] = {}
        for stats, item in self._in_hand():
            known = self._seen.get(id(item))
            if known is None or known.item is not item:
                known = _Seen(item, now)
            seen[id(item)] = known
            if not known.warned and now - known.since >= self._warning:
                known.warned = True
                message = first_of(item)
                seconds = now - known.since
                self._observe(HandlerSlow(self._group, stats.name, message.topic, message.message_id, seconds))
        self._seen = seen


def first_of(item: Any) -> Message:
    """The message, or the first of a batch."""
    message: Message = item if isinstance(item, Message) else item[0]
    return message
