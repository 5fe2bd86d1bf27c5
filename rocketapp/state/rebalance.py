"""Owned and wanted queues → what to acquire and what to release.

A missing answer never releases a queue. Only a list of members that contains this member
changes the assignment; an error or an empty list keeps the present one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation import AVERAGE, Allocation, sorted_members, sorted_queues


@dataclass(frozen=True, slots=True)
class Change:
    """What turns the owned queues into the wanted ones."""

    acquire: tuple[MessageQueue, ...]
    release: tuple[MessageQueue, ...]


def change(owned: Collection[MessageQueue], wanted: Collection[MessageQueue]) -> Change:
    """Queues to acquire and to release, each sorted."""
    have, want = frozenset(owned), frozenset(wanted)
    return Change(tuple(sorted_queues(want - have)), tuple(sorted_queues(have - want)))


class Membership(Enum):
    """What a list of members says about this member."""

    MEMBER = "in the list"
    UNKNOWN = "the list is empty"
    MISSING = "not in the list"


def membership(members: Collection[str], me: str) -> Membership:
    """Whether a list may be acted on. A restarted broker's list is empty until heartbeats arrive."""
    if me in members:
        return Membership.MEMBER
    return Membership.MISSING if members else Membership.UNKNOWN


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
    """Whether a topic has queues, and no member gets one: its messages are not consumed then."""
    there, ids = tuple(sorted_queues(queues)), tuple(sorted_members(members))
    # In order: with most strategies the first one has a queue. A group may have hundreds of members, and many topics.
    return bool(there) and all(set(there).isdisjoint(allocation.allocate(group, one, there, ids)) for one in ids)
