"""Which brokers hold a topic, with how many queues, at which addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rocketapp.model.message_queue import MessageQueue

MASTER_ID = 0
PERM_INHERIT, PERM_WRITE, PERM_READ = 1, 2, 4


@dataclass(frozen=True, slots=True)
class QueueData:
    """How many queues of a topic one broker has, and whether they may be read and written."""

    broker_name: str
    read_queues: int
    write_queues: int
    perm: int
    sys_flag: int = 0

    @property
    def readable(self) -> bool:
        return bool(self.perm & PERM_READ)

    @property
    def writable(self) -> bool:
        return bool(self.perm & PERM_WRITE)


@dataclass(frozen=True, slots=True)
class BrokerData:
    """The addresses of one broker name by broker id; id 0 is the master."""

    cluster: str
    broker_name: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        return self.addresses.get(MASTER_ID)


@dataclass(frozen=True, slots=True)
class TopicRoute:
    """What a name server knows of one topic."""

    queues: tuple[QueueData, ...]
    brokers: tuple[BrokerData, ...]
    order_conf: str = ""
    _by_name: dict[str, BrokerData] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_name", {broker.broker_name: broker for broker in self.brokers})

    def broker(self, name: str) -> BrokerData | None:
        return self._by_name.get(name)

    def readable_queues(self, topic: str) -> list[MessageQueue]:
        """Every queue that may be consumed, sorted. Its broker may have no master at the moment."""
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in self.queues
            if data.readable
            for queue_id in range(data.read_queues)
        )

    def writable_queues(self, topic: str) -> list[MessageQueue]:
        """Every queue that may be sent to: writable, and its broker has a master."""
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in self.queues
            if data.writable and (broker := self.broker(data.broker_name)) is not None and broker.master is not None
            for queue_id in range(data.write_queues)
        )
