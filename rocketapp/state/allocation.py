"""Which queues of a topic a member gets: the strategies, and the order that they rely on.

Members do not agree with each other. Each asks its own strategy with the same queues and the same members, so all
members of a group have to use the same strategy: then every queue has one owner. Java: AllocateMessageQueueStrategy.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Final, Protocol, TypeVar

from rocketapp.errors import AllocationError
from rocketapp.model.message_queue import MessageQueue


class Allocation(Protocol):
    """Says which queues are mine. The same arguments always have the same answer, in every process."""

    @property
    def name(self) -> str:
        """The name that the option `consumer.allocation` chooses it by, and that the log names."""
        ...

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """The share of `me` in the queues of one topic.

        `queues` and `members` (client ids) are sorted as all members sort them; neither is empty. Called on the event
        loop, for each topic at each rebalance: it must not block. What is returned and is not among `queues` is left
        out. When it raises, the member keeps the queues of that topic that it has, and asks again a second later.
        """
        ...


def is_member(name: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]) -> bool:
    """Whether `me` gets queues at all. Raises AllocationError where Java raises IllegalArgumentException.

    `name`: the strategy's.
    """
    if not me:
        raise AllocationError(name, "currentCID is empty")
    if not queues:
        raise AllocationError(name, "mqAll is null or mqAll empty")
    if not members:
        raise AllocationError(name, "cidAll is null or cidAll empty")
    return me in members


def java_order(text: str) -> bytes:
    """A sort key that orders as Java's String.compareTo does."""
    return text.encode("utf-16-be", "surrogatepass")


def sorted_members(members: Iterable[str]) -> list[str]:
    """Members in the order that every member uses. A client that reconnected may be listed twice; it counts once."""
    return sorted(set(members), key=java_order)


def sorted_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues in the order that every member uses: by topic, broker name and id."""
    return sorted(queues, key=lambda queue: (java_order(queue.topic), java_order(queue.broker_name), queue.queue_id))


def java_text(queue: MessageQueue) -> str:
    """A queue as Java's MessageQueue.toString() writes it; `CONSISTENT_HASH` hashes this text."""
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


@dataclass(frozen=True, slots=True)
class Average:
    """A member gets the queues that lie next to each other. Where shares differ, the first members have one more."""

    name: str = "AVG"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if not is_member(self.name, me, queues, members):
            return ()
        index, (share, rest) = members.index(me), divmod(len(queues), len(members))
        start = index * share + min(index, rest)
        return queues[start : start + share + (1 if index < rest else 0)]


AVERAGE: Final[Allocation] = Average()
"""What a group uses that says nothing."""


@dataclass(frozen=True, slots=True)
class ByCircle:
    """Of n members, a member gets every n-th queue: of each broker some, where `AVG` gives whole brokers."""

    name: str = "AVG_BY_CIRCLE"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if not is_member(self.name, me, queues, members):
            return ()
        return queues[members.index(me) :: len(members)]


@dataclass(frozen=True, slots=True)
class ByMachineRoom:
    """Equal, contiguous shares of the queues of these rooms; the rest goes one by one to the first members.

    The broker of a room is named `room@broker`. Queues of other rooms and of brokers with other names are left out.
    """

    rooms: frozenset[str]
    name: str = "MACHINE_ROOM"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        if not is_member(self.name, me, queues, members):
            return ()
        ours = [queue for queue in queues if self._is_ours(queue.broker_name)]
        index, (share, rest) = members.index(me), divmod(len(ours), len(members))
        mine = ours[index * share : (index + 1) * share]
        if index < rest:
            mine.append(ours[len(members) * share + index])
        return mine

    def _is_ours(self, broker_name: str) -> bool:
        # Java's split leaves out what is empty at the end: `room@broker@` has two parts as well.
        parts = broker_name.rstrip("@").split("@")
        return len(parts) == 2 and parts[0] in self.rooms


@dataclass(frozen=True, slots=True)
class ByConfig:
    """A fixed list, of all topics together. Nothing balances: a queue that no member lists is not consumed."""

    queues: tuple[MessageQueue, ...]
    name: str = "CONFIG"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        return self.queues


def parse_queue(text: str) -> MessageQueue:
    """A queue as it is written and logged: `topic@broker:id`. Raises ValueError for anything else."""
    # Names of topics have no @; those of brokers in machine rooms do.
    topic, _, rest = text.strip().partition("@")
    broker, _, number = rest.rpartition(":")
    if not topic or not broker or not (number.isascii() and number.isdecimal()):
        raise ValueError(f"{text!r} is not topic@broker:id")
    return MessageQueue(topic, broker, int(number))


class ConsistentHash:
    """Shares differ more in size than those of `AVG`: more virtual nodes make them more equal."""

    def __init__(self, virtual_nodes: int) -> None:
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


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Nearby:
    """Another strategy shares the queues of each room among the members there, and among all where there is none."""

    inner: Allocation
    room_of_broker: Callable[[str], str]
    """The machine room of a broker, by its name; empty when it is not known."""
    room_of_member: Callable[[str], str]
    """The same of a member, by its client id."""

    @property
    def name(self) -> str:
        return f"MACHINE_ROOM_NEARBY-{self.inner.name}"

    def allocate(
        self, group: str, me: str, queues: Sequence[MessageQueue], members: Sequence[str]
    ) -> Sequence[MessageQueue]:
        """Raises AllocationError when the room of any queue or member is not known."""
        if not is_member(self.name, me, queues, members):
            return ()
        queues_of = self._by_room(queues, lambda queue: self.room_of_broker(queue.broker_name), "mq", java_text)
        members_of = self._by_room(members, self.room_of_member, "consumer id", str)
        here = self.room_of_member(me)
        mine: list[MessageQueue] = []
        if here in queues_of:
            mine += self.inner.allocate(group, me, queues_of[here], members_of[here])
        for room in sorted(queues_of.keys() - members_of.keys(), key=java_order):
            mine += self.inner.allocate(group, me, queues_of[room], members)
        return mine

    def _by_room(
        self, those: Iterable[T], room_of: Callable[[T], str], what: str, shown: Callable[[T], str]
    ) -> dict[str, list[T]]:
        found: dict[str, list[T]] = {}
        for one in those:
            room = room_of(one)
            if not room:
                raise AllocationError(self.name, f"Machine room is null for {what} {shown(one)}")
            found.setdefault(room, []).append(one)
        return found
