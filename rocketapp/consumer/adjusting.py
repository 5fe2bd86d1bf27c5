"""Limits that change while a group runs: those that an operator adjusts, and concurrency that follows the backlog.

As Java's client plans it, concurrent handlers run more calls at once while many messages wait. It is looked once a
minute: from the backlog of the settings on, their number doubles with each look, up to the most of each handler; below
80 % of it, it is halved, down to what is declared.
"""

from __future__ import annotations

from collections.abc import Mapping

from rocketapp.consumer.member import Member, Owned
from rocketapp.consumer.modes.table import Modes
from rocketapp.model.event import Adjusted
from rocketapp.tasks import repeat

_INTERVAL = 60.0
_ENOUGH = 0.8
"""The share of the backlog below which fewer calls run."""
_MOST_TIMES = 1 << 16


class Adjusting:
    """Changes limits of one group: of its pulls and pops, and of its handlers."""

    def __init__(self, member: Member, modes: Modes) -> None:
        self._member, self._modes, self._owned = member, modes, member.owned
        self._times = 1

    def __repr__(self) -> str:
        return f"<Adjusting {self._member.name}: {self._times} times the declared concurrency>"

    def change(self, changes: Mapping[str, Mapping[str, float | None]]) -> None:
        """From now on these values hold, by topic of the group or its retry topic; None: as at the start."""
        member, limits = self._member, self._member.limits
        for topic, values in changes.items():
            limits.change(topic, values)
        for handler in member.stats.handlers:
            about = handler.subscription
            if about.topic in changes:
                now = limits.changed.get(about.topic, {})
                concurrency, rate = int(now.get("concurrency", about.concurrency)), now.get("rate", about.rate)
                batch = None if about.batch is None else int(now.get("batch", about.batch))
                for mode in self._modes.all:
                    mode.pace(handler, concurrency, rate, batch)
        for queue, owned in self._owned.items():
            if queue.topic in changes:
                owned.limits_changed()
        for topic, values in changes.items():
            words = [f"{name} {'as at the start' if one is None else f'{one:g}'}" for name, one in values.items()]
            member.observe(Adjusted(member.name, topic, ", ".join(words)))

    async def follow_backlog(self) -> None:
        """Grow and shrink the concurrency until this is cancelled."""
        await repeat(_INTERVAL, self._look)

    def _look(self) -> None:
        waiting, backlog = sum(map(_waiting, self._owned.values())), self._member.config.adjust_backlog
        times = self._times
        if waiting >= backlog:
            times = min(2 * times, _MOST_TIMES)
        elif waiting < _ENOUGH * backlog:
            times = max(1, times // 2)
        if times != self._times:
            self._times = times
            self._modes.concurrent.grow(times)


def _waiting(owned: Owned) -> int:
    """Messages of a queue that are not finished, as of the last answer of its broker."""
    process_queue = owned.process_queue
    if process_queue is None or process_queue.broker_end is None:
        return 0
    return max(0, process_queue.broker_end - process_queue.end_offset) + len(process_queue)
