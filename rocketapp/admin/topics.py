"""Topics: which there are, what they hold, who consumes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocketapp.admin.cluster import AdminCluster, at_once
from rocketapp.client.calls import admin
from rocketapp.errors import NoRouteError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DLQ_PREFIX, FORBIDDEN_TOPICS, RETRY_PREFIX
from rocketapp.model.route import QueueData
from rocketapp.transport.connection import Connection
from rocketapp.wire.requests.admin import TopicConfig
from rocketapp.wire.requests.statistics import TopicOffset

Kind = Literal["normal", "retry", "dlq", "system"]
_SYSTEM = frozenset({"TBW102", "BenchmarkTest", "DefaultHeartBeatSyncerTopic", "OFFSET_MOVED_EVENT"}) | FORBIDDEN_TOPICS
_SYSTEM_BEGINS = ("rmq_sys_", "RMQ_SYS_", "%SYS%")
_REPLIES = "_REPLY_TOPIC"


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """One topic and the brokers that hold it."""

    name: str
    kind: Kind
    brokers: tuple[QueueData, ...]


@dataclass(frozen=True, slots=True)
class ShownTopic:
    """A topic with its queues and their offsets."""

    name: str
    kind: Kind
    configs: dict[str, TopicConfig]
    """How each broker keeps it."""
    offsets: dict[MessageQueue, TopicOffset]
    groups: tuple[str, ...]
    """The groups that subscribe to it, or have offsets in it."""

    @property
    def messages(self) -> int:
        """How many messages it holds, as far as its offsets tell."""
        return sum(held.max_offset - held.min_offset for held in self.offsets.values())


async def kinds_of_topics(cluster: AdminCluster) -> dict[str, Kind]:
    """What each topic is for, by its name, sorted."""
    own = {*cluster.masters, *(broker.cluster for broker in await cluster.client.brokers())}
    return {name: kind_of(name, own) for name in await cluster.topics()}


async def list_topics(cluster: AdminCluster, *, every: bool = False) -> list[ListedTopic]:
    """The topics, sorted; `every`: those of retries, dead letters and the system too."""
    kinds = await kinds_of_topics(cluster)
    chosen = [(name, kind) for name, kind in kinds.items() if every or kind == "normal"]

    async def one(named: tuple[str, Kind]) -> ListedTopic | None:
        name, kind = named
        try:
            return ListedTopic(name, kind, (await cluster.route(name)).queues)
        except NoRouteError:
            return None  # deleted meanwhile

    return [found for found in await at_once(one, chosen) if found is not None]


async def show_topic(cluster: AdminCluster, topic: str) -> ShownTopic:
    """Its configuration, its queues and its groups. Raises NoRouteError when no broker holds it."""
    route = await cluster.route(topic)
    names = [data.broker_name for data in route.queues]

    async def one(
        connection: Connection, timeout: float
    ) -> tuple[TopicConfig | None, dict[MessageQueue, TopicOffset], list[str]]:
        return (
            await admin.topic_config(connection, topic, timeout),
            await admin.topic_stats(connection, topic, timeout),
            await admin.groups_of_topic(connection, topic, timeout),
        )

    answers = await cluster.from_reachable(one, among=names)
    own = {*cluster.masters, *(broker.cluster for broker in route.brokers)}
    return ShownTopic(
        topic,
        kind_of(topic, own),
        {name: config for name, (config, _, _) in answers.items() if config is not None},
        dict(sorted(item for _, offsets, _ in answers.values() for item in offsets.items())),
        tuple(sorted({group for _, _, groups in answers.values() for group in groups})),
    )


async def create_topic(cluster: AdminCluster, topic: str, *, queues: int, broker: str | None = None) -> list[str]:
    """Create it on every master that does not have it, or on one; returns their names.

    So the same call completes one that a broker has refused or was away from. What is there is left as it is.
    """
    created = []
    for name in [broker] if broker is not None else list(cluster.masters):
        connection = await cluster.connection(name)
        if await admin.topic_config(connection, topic, cluster.timeout) is None:
            await admin.put_topic(connection, TopicConfig(topic, queues, queues), cluster.timeout)
            created.append(name)
    return created


def kind_of(topic: str, own: set[str]) -> Kind:
    """What a topic is for. `own`: the names of the cluster's brokers and clusters, which are topics too."""
    if topic.startswith(RETRY_PREFIX):
        return "retry"
    if topic.startswith(DLQ_PREFIX):
        return "dlq"
    is_system = topic in _SYSTEM or topic in own or topic.startswith(_SYSTEM_BEGINS) or topic.endswith(_REPLIES)
    return "system" if is_system else "normal"
