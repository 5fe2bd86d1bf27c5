"""`AVG`: contiguous shares, as equal as possible. Java: AllocateMessageQueueAveragely, the default of all clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.allocation.strategy import Allocation, is_member


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
