"""Divides queues among members, and says which brokers' lists of members may be acted on.

A missing answer never releases a queue. Only a list of members that contains this member changes the assignment; an
error or an empty list keeps the present one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation import AVERAGE, Allocation, sorted_members, sorted_queues

REGROUP = 2.0
"""Seconds after a lost broker was reached again: living members dial it about once a second."""
LONGEST_GRACE = 10.0
"""Seconds after the first disturbance of a row: a broker that is lost again and again delays nothing for longer."""


def share(
    queues: Iterable[MessageQueue],
    members: Iterable[str],
    me: str,
    *,
    group: str = "",
    allocation: Allocation = AVERAGE,
) -> frozenset[MessageQueue]:
    """The queues of one topic that are mine. Raises what the allocation raises.

    A topic without queues has nothing to share: no strategy is asked.
    """
    there = sorted_queues(queues)
    if not there:
        return frozenset()
    mine = allocation.allocate(group, me, tuple(there), tuple(sorted_members(members)))
    return frozenset(mine).intersection(there)


def is_left_out(
    queues: Collection[MessageQueue], members: Collection[str], *, group: str, allocation: Allocation
) -> bool:
    """Whether a topic has queues that no member gets: its messages are not consumed then."""
    there, ids = tuple(sorted_queues(queues)), tuple(sorted_members(members))
    # In order: with most strategies the first one has a queue. A group may have hundreds of members, and many topics.
    return bool(there) and all(set(there).isdisjoint(allocation.allocate(group, one, there, ids)) for one in ids)


class GracePeriods:
    """Until when the lists of members of which brokers are not acted on, because those brokers just came back.

    Members that were cut off together come back one after the other. A member that decided on the first list would
    take queues from members that are about to return.
    """

    __slots__ = ("_since", "_until")

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._until: dict[str, float] = {}

    def __repr__(self) -> str:
        return f"<GracePeriods until {self._until}>"

    def disturb(self, broker_name: str, now: float) -> None:
        """The broker came back and members return to it one by one: its grace period begins."""
        until = self._until.get(broker_name)
        if until is None or now > until + REGROUP:
            self._since[broker_name] = until = now
        self._until[broker_name] = max(until, min(now + REGROUP, self._since[broker_name] + LONGEST_GRACE))

    def is_over(self, broker_name: str, now: float) -> bool:
        """Whether the list of this broker may be acted on."""
        return now >= self._until.get(broker_name, now)

    def next_end(self, now: float) -> float | None:
        """When the next list may be acted on; None when all may."""
        return min((until for until in self._until.values() if until > now), default=None)
