"""`CONSISTENT_HASH`: members that come and go move few queues. Java: AllocateMessageQueueConsistentHash.

Members stand on a ring of 2^32 places, each at several places (virtual nodes). A queue belongs to the member that comes
first from its own place on. The place of a text is the beginning of its MD5.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from hashlib import md5

from rocketapp.errors import AllocationError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation.order import java_text
from rocketapp.state.allocation.strategy import is_member

VIRTUAL_NODES = 10
"""Places of one member (Java's default)."""


class ConsistentHash:
    """Shares differ more in size than those of `AVG`: more virtual nodes make them more equal."""

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES) -> None:
        """All members of a group have the same number of virtual nodes."""
        if virtual_nodes < 0:
            raise AllocationError("CONSISTENT_HASH", f"illegal virtualNodeCnt :{virtual_nodes}")
        self.name: str = "CONSISTENT_HASH"
        self._virtual_nodes = virtual_nodes
        self._ring = _Ring((), 0)
        """Of the members that were asked for last: all topics of a group have the same."""

    def __repr__(self) -> str:
        return f"<ConsistentHash: {self._virtual_nodes} virtual nodes>"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if not is_member(self.name, me, queues, members):
            return ()
        if self._ring.members != tuple(members):
            self._ring = _Ring(tuple(members), self._virtual_nodes)
        return [queue for queue in queues if self._ring.owner(java_text(queue)) == me]


class _Ring:
    """The places of some members."""

    def __init__(self, members: tuple[str, ...], virtual_nodes: int) -> None:
        self.members: tuple[str, ...] = members
        owners: dict[int, str] = {}
        seen: set[str] = set()
        for member in members:
            # One that is listed again gets further places, behind those that it still has.
            first = sum(owner == member for owner in owners.values()) if member in seen else 0
            seen.add(member)
            for number in range(first, first + virtual_nodes):
                owners[_place(f"{member}-{number}")] = member
        self._places = sorted(owners)
        self._owners = owners

    def owner(self, text: str) -> str | None:
        """The member that comes first from the place of this text on; None when no member has a place."""
        if not self._places:
            return None
        index = bisect_left(self._places, _place(text))
        return self._owners[self._places[index % len(self._places)]]


def _place(text: str) -> int:
    # Half of a surrogate pair becomes a question mark, as in Java.
    digest = md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()
    return int.from_bytes(digest[:4], "big")
