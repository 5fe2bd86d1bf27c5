"""Runs more calls of concurrent handlers at once while many messages wait, as Java's client plans it: once a minute.

From the backlog of the settings on, their number doubles with each look, up to the most of each handler; below 80 % of
it, it is halved, down to what is declared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from rocketapp.consumer.group.owned import Owned
from rocketapp.model.message_queue import MessageQueue
from rocketapp.tasks import repeat

_INTERVAL = 60.0
_ENOUGH = 0.8
"""The share of the backlog below which fewer calls run."""
_MOST_TIMES = 1 << 16


class Grows(Protocol):
    """A way of consuming whose concurrency can be changed."""

    def grow(self, times: int) -> None:
        """Run that many times as many calls at once as declared, up to the most of each handler."""
        ...


class ConcurrencyGrowth:
    """Grows and shrinks the concurrency of one group."""

    def __init__(self, way: Grows, owned: Mapping[MessageQueue, Owned], backlog: int) -> None:
        self._way, self._owned, self._backlog = way, owned, backlog
        self._times = 1

    def __repr__(self) -> str:
        return f"<ConcurrencyGrowth: {self._times} times the declared concurrency>"

    async def run(self) -> None:
        """Look until this is cancelled."""
        await repeat(_INTERVAL, self._look)

    def _look(self) -> None:
        waiting = sum(map(_waiting, self._owned.values()))
        times = self._times
        if waiting >= self._backlog:
            times = min(2 * times, _MOST_TIMES)
        elif waiting < _ENOUGH * self._backlog:
            times = max(1, times // 2)
        if times != self._times:
            self._times = times
            self._way.grow(times)


def _waiting(owned: Owned) -> int:
    """Messages of a queue that are not finished, as of the last answer of its broker."""
    process_queue = owned.process_queue
    if process_queue is None or process_queue.broker_end is None:
        return 0
    return max(0, process_queue.broker_end - process_queue.end_offset) + len(process_queue)
