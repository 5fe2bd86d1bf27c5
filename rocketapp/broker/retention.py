"""Old messages leave: whole segments from the front of the log, and what of queues and index points to them.

A segment is as old as the first record behind it. It leaves when it is old and the hour has come, or the disk fills;
when the disk is nearly full, whatever its age. Before nothing is left the broker refuses messages, and says so earlier.
What waits for its time or its commit stays, and what is behind it, unless the disk is nearly full.
The last segments stay: recovery begins there.

Rule: first the offsets at which queues begin move, then the log begins later, then files go, the oldest first. The end
of each name is on disk before the next one goes, so a crash leaves a log that begins later, and none with a gap.
Java: CleanCommitLogService, CleanConsumeQueueService.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import datetime

from rocketapp.broker.indexing import Run
from rocketapp.broker.store.consume_queue import ConsumeQueue
from rocketapp.broker.store.files import directory_of
from rocketapp.broker.store.key_index import KeyIndex
from rocketapp.broker.store.store import MessageStore
from rocketapp.clock import Clock
from rocketapp.config.broker import BrokerConfig
from rocketapp.errors import ConfigError
from rocketapp.model.event import LoopFailed, Observe

_SLICE = 64
"""Queues whose first offset is looked for in one turn of the loop."""


class Retention:
    """Decides what is old, and removes it. The owner of the timer calls `clean`."""

    def __init__(
        self, store: MessageStore, index: KeyIndex, config: BrokerConfig, *, clock: Clock, observe: Observe, run: Run
    ) -> None:
        self._store, self._index, self._config, self._clock = store, index, config, clock
        self._observe, self._run = observe, run
        self._hours = _hours(config.delete_when)
        self._doomed: list[tuple[str, ConsumeQueue | None]] = []
        """Files that nothing reads any more, in the order in which they go; and the queue of each."""
        self._used = 0.0
        self._has_warned = False

    def __repr__(self) -> str:
        return f"<Retention: the disk is used to {self._used:.0%}>"

    async def clean(self, first_waiting: Callable[[], float]) -> None:
        """Remove what is old. Raises OSError when a file cannot be removed; the next round goes on with it.

        `first_waiting`: where the log has the first message that nobody could read yet.
        """
        self._used = await self._run(self._store.files.used)
        self._warn()
        before_ms = self._before_ms()
        keep_from = first_waiting() if 0 < before_ms < math.inf else math.inf
        position = self._store.expired(before_ms, keep_from)
        if position > self._store.begin_position:
            queues = list(self._store.queues.values())
            for first in range(0, len(queues), _SLICE):
                for queue in filter(self._store.queues.has, queues[first : first + _SLICE]):
                    self._doomed += ((path, queue) for path in queue.drop_front(position))
                await asyncio.sleep(0)
            paths = self._index.begin_at(position) + self._store.log.begin_at(position)
            self._doomed += ((path, None) for path in paths)
        # With a topic all its files have gone, and those of a new topic have the same names.
        self._doomed = [(path, queue) for path, queue in self._doomed if queue is None or self._store.queues.has(queue)]
        if self._doomed:
            await self._run(self._remove)

    def _before_ms(self) -> float:
        """Messages that were stored before this time go: milliseconds since 1970."""
        config, now = self._config, self._clock.now()
        if self._used * 100 >= config.disk_forced_percent:
            return math.inf
        if datetime.fromtimestamp(now).hour in self._hours or self._used * 100 >= config.disk_used_percent:
            return (now - config.reserved_hours * 3600) * 1000
        return 0

    def _warn(self) -> None:
        percent, most = self._used * 100, self._config.disk_full_percent
        used = f"the disk is used to {percent:.0f} %"
        mend = f"limit {most} (broker.disk_full_percent): no message is taken until there is room"
        self._store.refusal = f"{used}, {mend}" if percent >= most else None
        is_filling = percent >= self._config.disk_forced_percent
        if is_filling and not self._has_warned:
            problem = f"{used}: the oldest messages are removed, also unread ones; at {most} % none are taken any more"
            self._observe(LoopFailed("retention", problem))
        self._has_warned = is_filling

    def _remove(self) -> None:
        while self._doomed:
            path, _ = self._doomed[0]
            self._store.files.remove(path)
            self._store.files.sync_directory(directory_of(path))
            del self._doomed[0]


def _hours(text: str) -> frozenset[int]:
    hours = [hour.strip() for hour in text.split(";") if hour.strip()]
    if not all(hour.isdecimal() and int(hour) < 24 for hour in hours):
        raise ConfigError("broker.delete_when", f"{text!r} is not a list of hours: give 04, or 04;16")
    return frozenset(map(int, hours))
