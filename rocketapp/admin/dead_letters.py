"""The dead letters of a group: why they failed, and the messages to send again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from functools import partial

from rocketapp.admin import messages
from rocketapp.admin.cluster import AdminCluster, at_once
from rocketapp.admin.messages import limits, read
from rocketapp.errors import NoRouteError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DLQ_PREFIX, RETRY_PREFIX, dlq_topic, retry_topic
from rocketapp.state.redelivery import NO_DELAY, REASONS
from rocketapp.wire import properties as names
from rocketapp.wire.record import Message

MARK = "rocketapp.replayed_from"
"""The property of a replayed message: the topic and place of its dead letter."""
_NOT_AGAIN = frozenset(
    {*NO_DELAY, *REASONS, names.RECONSUME_TIME, names.MAX_RECONSUME_TIMES}
    | {"MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME"}
)
"""Properties that tell of the failure or would delay the message."""


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """A message in a dead letter topic, with the properties that describe its failure."""

    message: Message

    @property
    def queue(self) -> MessageQueue:
        """The queue that holds it."""
        assert self.message.queue is not None  # it was pulled
        return self.message.queue

    @property
    def place(self) -> str:
        """`broker:queue:offset`, as commands name it."""
        return f"{self.queue.broker_name}:{self.queue.queue_id}:{self.message.offset}"

    @property
    def mark(self) -> str:
        """The value of the property `rocketapp.replayed_from` in its copies."""
        return f"{self.queue.topic}@{self.place}"

    @property
    def topic(self) -> str:
        """The topic it was published to; empty when its properties do not say so."""
        found = self.message.properties
        topic = found.get(names.RETRY_TOPIC) or found.get(names.DLQ_ORIGIN_TOPIC, "")
        return "" if topic.startswith(RETRY_PREFIX) else topic

    @property
    def reason(self) -> str:
        """What its last attempt raised, if rocketapp handled it; otherwise empty."""
        found = self.message.properties
        kind, text = found.get("rocketapp.exception", ""), found.get("rocketapp.reason", "")
        return f"{kind}: {text}" if kind and not text.startswith(kind) else text

    @property
    def attempts(self) -> int:
        """The number of its attempts."""
        told = self.message.properties.get("rocketapp.attempts", "")
        return int(told) if told.isdecimal() else self.message.reconsume_times

    def has_id(self, wanted: str) -> bool:
        """Whether this is its place, its producer's or broker's id, or the id of its first delivery."""
        told = self.message.properties
        return wanted in (
            self.place,
            self.message.message_id,
            self.message.offset_message_id,
            told.get(names.ORIGIN_MESSAGE_ID),
            told.get(names.DLQ_ORIGIN_MESSAGE_ID),
        )


async def queues_of(cluster: AdminCluster, group: str) -> dict[MessageQueue, range]:
    """The queues of the group's dead letter topic with the offsets that they hold; empty if there never were any."""
    return await limits(cluster, await _queues(cluster, group))


async def _queues(cluster: AdminCluster, group: str) -> list[MessageQueue]:
    try:
        return await cluster.queues(dlq_topic(group))
    except NoRouteError:
        return []


async def dead_letters(cluster: AdminCluster, group: str) -> AsyncIterator[StoredDeadLetter]:
    """All dead letters, queue by queue, oldest first."""
    for queue, held in (await queues_of(cluster, group)).items():
        async for batch in read(cluster, queue, held.start, held.stop):
            for message in batch:
                yield StoredDeadLetter(message)


async def reachable_queues(cluster: AdminCluster, group: str) -> dict[MessageQueue, range]:
    """As `queues_of`, of the brokers that answer; `cluster.silent` names the others."""
    by_broker: dict[str, list[MessageQueue]] = {}
    for queue in await _queues(cluster, group):
        by_broker.setdefault(queue.broker_name, []).append(queue)
    held = await cluster.reachable(lambda name: limits(cluster, by_broker[name]), by_broker)
    return {queue: offsets for own in held.values() for queue, offsets in own.items()}


async def newest(cluster: AdminCluster, group: str, most: int) -> list[StoredDeadLetter]:
    """The newest dead letters, newest first, of the brokers that answer."""
    held = await reachable_queues(cluster, group)
    return [StoredDeadLetter(message) for message in await messages.newest(cluster, held, most)]


async def find(cluster: AdminCluster, group: str, wanted: str) -> StoredDeadLetter | None:
    """The dead letter at a place or with an id; the newest one of several copies."""
    for queue, held in (await queues_of(cluster, group)).items():
        beginning, _, offset = wanted.rpartition(":")
        if beginning == f"{queue.broker_name}:{queue.queue_id}" and offset.isdecimal() and int(offset) in held:
            async for batch in read(cluster, queue, int(offset), int(offset) + 1):
                return StoredDeadLetter(batch[0])
    found = None
    async for one in dead_letters(cluster, group):
        if one.has_id(wanted) and (found is None or one.message.stored_ms >= found.message.stored_ms):
            found = one
    return found


def as_delivered(letter: StoredDeadLetter, group: str) -> Message:
    """The message as a handler of the group would get it, as its first attempt."""
    message, queue = letter.message, letter.queue
    message.queue = queue._replace(topic=retry_topic(group) if letter.topic else queue.topic)
    message.reconsume_times = 0
    return message


def replayed_properties(letter: StoredDeadLetter) -> Mapping[str, str]:
    """The properties of its copy: its own and its place, without those of its failure."""
    own = {name: value for name, value in letter.message.properties.items() if name not in _NOT_AGAIN}
    return {**own, names.RETRY_TOPIC: letter.topic, MARK: letter.mark}


async def groups_with(cluster: AdminCluster) -> list[str]:
    """All groups that have or had dead letters."""
    return [topic.removeprefix(DLQ_PREFIX) for topic in await cluster.topics() if topic.startswith(DLQ_PREFIX)]


async def counts(cluster: AdminCluster) -> list[tuple[str, int]]:
    """All groups with dead letters, and how many, on brokers that answer."""
    groups = await groups_with(cluster)
    held = await at_once(partial(reachable_queues, cluster), groups)
    found = [(group, sum(map(len, queues.values()))) for group, queues in zip(groups, held, strict=True)]
    return [(group, count) for group, count in found if count]
