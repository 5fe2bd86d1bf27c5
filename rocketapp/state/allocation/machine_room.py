"""`MACHINE_ROOM`: only the queues of some machine rooms are consumed. Java: AllocateMessageQueueByMachineRoom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation.strategy import is_member


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
