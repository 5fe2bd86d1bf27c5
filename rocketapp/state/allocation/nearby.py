"""`MACHINE_ROOM_NEARBY`: queues go to members of their own machine room. Java: AllocateMachineRoomNearby."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rocketapp.errors import AllocationError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation.order import java_order, java_text
from rocketapp.state.allocation.strategy import Allocation, is_member

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
