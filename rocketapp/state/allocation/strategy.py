"""What an allocation strategy is: which queues of one topic a member gets, computed from the ids of all members.

Members do not agree with each other. Each asks its own strategy with the same queues and the same members, so all
members of a group have to use the same strategy: then every queue has one owner. Java: AllocateMessageQueueStrategy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
