"""Measures for how long queues have stood still, and groups have been without queues.

A queue that finishes messages, however slowly, does not stand still.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.model.message_queue import MessageQueue
from rocketapp.operate.app_state import Stall, Unassigned
from rocketapp.plugin import AppSnapshot, QueueSnapshot

_GAP = 5.0
"""Seconds for which a reason may be gone without a message being finished: an attempt to go on finishes nothing."""


@dataclass(slots=True)
class _Standing:
    finished: int
    committed: int
    since: float
    seen: float


class Stalls:
    """Watches the queues of one process over successive snapshots."""

    def __init__(self) -> None:
        self._standing: dict[tuple[str, str, MessageQueue], _Standing] = {}
        self._unassigned: dict[tuple[str, str], float] = {}
        """Since when."""

    def __repr__(self) -> str:
        return f"<Stalls of {len(self._standing)} queues>"

    def look(self, now: float, app: AppSnapshot) -> tuple[Stall, ...]:
        """Every queue that stands still. `now` in seconds; call it every few seconds."""
        found = []
        for group in app.groups:
            for one in group.queues:
                if one.blocked:
                    standing = self._seen(now, (group.cluster, group.group, one.queue), one)
                    seconds = now - standing.since
                    found.append(Stall(group=group.group, queue=one.queue, reason=one.blocked, seconds=seconds))
        self._standing = {key: one for key, one in self._standing.items() if now - one.seen <= _GAP}
        return tuple(found)

    def look_at_groups(self, now: float, app: AppSnapshot) -> tuple[Unassigned, ...]:
        """Every group whose last rebalance could not decide on all topics. `now` in seconds."""
        found = [group for group in app.groups if group.unassigned or not group.has_assigned]
        keys = [(group.cluster, group.group) for group in found]
        self._unassigned = {key: self._unassigned.get(key, now) for key in keys}
        return tuple(
            Unassigned(
                group=group.group,
                reason=group.unassigned,
                seconds=now - self._unassigned[key],
                has_assigned=group.has_assigned,
            )
            for group, key in zip(found, keys, strict=True)
        )

    def _seen(self, now: float, key: tuple[str, str, MessageQueue], queue: QueueSnapshot) -> _Standing:
        standing = self._standing.get(key)
        finished = queue.finished  # None while it is not consumed: nothing is finished meanwhile
        if standing is None:
            standing = self._standing[key] = _Standing(finished or 0, queue.committed or 0, now, now)
        elif finished is not None and finished > standing.finished:
            standing.finished, standing.since = finished, now
        if queue.committed is not None:
            if queue.committed < standing.committed:
                # An administrator has set it back: what is finished from there on is progress again.
                standing.finished = 0 if finished is None else finished
            standing.committed = queue.committed
        standing.seen = now
        return standing
