"""`AVG_BY_CIRCLE`: queues are dealt out one by one, like cards. Java: AllocateMessageQueueAveragelyByCircle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation.strategy import is_member


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
