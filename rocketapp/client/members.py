"""The groups of this process: the content of its heartbeats, and the receivers of brokers' notifications."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from rocketapp.errors import SetupError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.requests.clients import ConsumerData, Heartbeat
from rocketapp.wire.requests.direct import DirectRequest, DirectResult
from rocketapp.wire.requests.running_info import RunningInfo


class ConsumerMember(Protocol):
    """A consumer as its client sees it."""

    def consumer_data(self) -> ConsumerData:
        """This consumer's part of the heartbeat."""
        ...

    def running_info(self, *, with_stacks: bool = False, brief: bool = False) -> RunningInfo:
        """What it tells of itself; `with_stacks`: also where the threads and tasks of this process stand.

        `brief`: only what it subscribes and pulls.
        """
        ...

    def done_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """By queue of the topic the offset below which everything is done."""
        ...

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator has moved the group: those of these queues that we own go on at these offsets."""
        ...

    async def consume_directly(self, request: DirectRequest, record: bytes) -> DirectResult:
        """Consume one stored message now: what becomes of it, or why it is not taken."""
        ...

    def members_changed(self) -> None:
        """A member joined or left the group."""
        ...

    def routes_changed(self) -> None:
        """The queues or brokers of some topic have changed."""
        ...

    def broker_lost(self, broker_names: Sequence[str]) -> None:
        """The connection to a master was lost. For that broker this member has left, and others get its queues."""
        ...

    def broker_back(self, broker_names: Sequence[str]) -> None:
        """A lost master is connected again, and has heard a heartbeat."""
        ...


class Members:
    """The consumers and producers of this process, by group: what its heartbeats tell."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id
        self.consumers: dict[str, ConsumerMember] = {}
        """By group, in the order in which they joined."""
        self._producers: Counter[str] = Counter()

    def add_consumer(self, group: str, member: ConsumerMember) -> None:
        """Raises SetupError for the second consumer of a group: a broker would take the two for one member."""
        if group in self.consumers:
            raise SetupError("", f"group {group!r} is registered twice with client {self._client_id}")
        self.consumers[group] = member

    def add_producer(self, group: str) -> None:
        """Several producers may share a group."""
        self._producers[group] += 1

    def remove_producer(self, group: str) -> bool:
        """Whether that was the group's last producer."""
        left = self._producers.pop(group, 0) - 1
        if left > 0:
            self._producers[group] = left
        return left == 0

    def beat(self) -> Heartbeat | None:
        """The next heartbeat; None when this process is in no group."""
        if not (self.consumers or self._producers):
            return None
        consumers = tuple(member.consumer_data() for _, member in sorted(self.consumers.items()))
        return Heartbeat(self._client_id, tuple(sorted(self._producers)), consumers)
