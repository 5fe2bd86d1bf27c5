"""Reports once a second what handlers have done, and warns of calls that run for very long."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.items import Item, first_of
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.consumer.standing_calls import places_of_calls
from rocketapp.consumer.stats import GroupStats
from rocketapp.model.event import Handled, HandlerSlow, LoopFailed, Observe, Unmatched
from rocketapp.model.message_queue import MessageQueue
from rocketapp.tasks import repeat

if TYPE_CHECKING:
    from rocketapp.consumer.retry.releasing import Releasing

_REPORT_INTERVAL = 1.0
"""Seconds between reports of counters."""
_SWEEP_INTERVAL = 10.0
"""Seconds between looks at how long calls have been running; less when the warning comes sooner."""
_LONG_RUNNING = 10.0
"""Seconds after which a running call is a reason for a queue to stand still; less when the warning comes sooner."""


_WARNINGS = 2
"""Warnings about one call."""
Expired = tuple[Handler, Any, float]
"""Handler, item and seconds of a call."""


@dataclass(slots=True)
class _Seen:
    item: Any
    since: float
    warned: int = 0
    """How many warnings have been given."""


class Watch:
    """Counts and warnings of one group."""

    def __init__(
        self,
        *,
        group: str,
        stats: GroupStats,
        in_hand: Callable[[], list[tuple[Handler, Any]]],
        stall_reasons: Sequence[StallReasons],
        warning: float,
        observe: Observe,
        looks: Sequence[Callable[[], None]] = (),
        releasing: Releasing | None = None,
    ) -> None:
        """`warning`: seconds after which a running call is warned about, and again after twice as many.

        `looks`: others that look once a second, before the reasons to stand still are told. `releasing` takes the calls
        that have been running for that long; None: they go on.
        """
        self._looks, self._releasing = looks, releasing
        self.slow: Counter[str] = Counter()
        """By handler the calls that were warned about, since the start."""
        self._group, self._stats, self._in_hand, self._stall_reasons = group, stats, in_hand, stall_reasons
        self._warning, self._observe = warning, observe
        self._loop = asyncio.get_running_loop()
        self._seen: dict[int, _Seen] = {}
        self._next_sweep = 0.0
        self._handled = [0 for _ in stats.handlers]
        """What was reported of each handler."""
        self._unmatched: dict[str, int] = {}
        """What was reported of each topic."""

    def running_long(self) -> dict[MessageQueue, str]:
        """Queues that wait for a call that has been running for some time, and which call."""
        now = self._loop.time()
        limit = min(_LONG_RUNNING, self._warning)
        known = [(handler, item, self._seen.get(id(item))) for handler, item in self._in_hand()]
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

    async def run(self) -> None:
        """Report until this is cancelled."""
        await repeat(_REPORT_INTERVAL, self._try_to_look)

    def _try_to_look(self) -> None:
        try:
            self.look()
        except Exception as error:
            self._observe(LoopFailed("watch", f"{type(error).__name__}: {error}"))

    def look(self) -> None:
        """Report what is new since the last report."""
        for look in self._looks:
            look()
        for stall_reasons in self._stall_reasons:
            stall_reasons.tell()
        for index, handler in enumerate(self._stats.handlers):
            handled = handler.stats.handled
            if count := handled - self._handled[index]:
                self._handled[index] = handled
                self._observe(Handled(self._group, handler.name, handler.subscription.topic, count))
        for topic, stats in self._stats.unmatched.items():
            if count := stats.unmatched - self._unmatched.get(topic, 0):
                self._unmatched[topic] = stats.unmatched
                self._observe(Unmatched(self._group, topic, count))
        now = self._loop.time()
        if now >= self._next_sweep:
            self._next_sweep = now + min(_SWEEP_INTERVAL, self._warning / 2)
            self._sweep(now)
        elif self._seen:
            # A call that has ended must not keep its messages in memory.
            hand = {id(item): item for _, item in self._in_hand()}
            self._seen = {key: seen for key, seen in self._seen.items() if hand.get(key) is seen.item}

    def _sweep(self, now: float) -> None:
        seen: dict[int, _Seen] = {}
        expired: list[Expired] = []
        late: list[Expired] = []
        for handler, item in self._in_hand():
            known = self._seen.get(id(item))
            if known is None or known.item is not item:
                known = _Seen(item, now)
            seen[id(item)] = known
            seconds = now - known.since
            if seconds < self._warning:
                continue
            expired.append((handler, item, seconds))
            if known.warned < _WARNINGS and seconds >= self._warning * (known.warned + 1):
                self.slow[handler.name] += not known.warned
                known.warned += 1
                late.append((handler, item, seconds))
        self._seen = seen
        # Once for all of them: it looks at every task, and a thousand calls may be late at the same moment.
        places = places_of_calls() if late else {}
        for handler, item, seconds in late:
            self._observe(self._slow(handler, item, seconds, places))
        if expired and self._releasing is not None:
            self._releasing.sweep(expired)

    def _slow(self, handler: Handler, item: Item, seconds: float, places: Mapping[int, str]) -> HandlerSlow:
        message, place = first_of(item), places.get(id(item), "")
        return HandlerSlow(self._group, handler.name, message.topic, message.message_id, seconds, place)
