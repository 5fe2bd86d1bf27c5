"""RocketMQ's two message models: whether the members of a group share its queues, and all that follows from it.

With clustering each queue has one owner among the members, brokers keep the offsets, and a failed message comes back to
any member. With broadcasting every member consumes every queue for itself: it keeps its own offsets, needs no locks,
and drops a failed message, since a copy would come to the members that have handled it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.group_offsets import GroupOffsets
from rocketapp.consumer.group.offsets import Offsets
from rocketapp.consumer.handler import ConsumedTopic, subscriptions_of
from rocketapp.consumer.parts import ConsumerParts
from rocketapp.consumer.pull.sources import Commits
from rocketapp.consumer.retry.failed_messages import FailedMessages
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.consumer.ways.delivery import Prompt, no_prompt
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import retry_topic
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.trust import Trust, Unshared
from rocketapp.tasks import Tasks
from rocketapp.wire.requests.clients import BROADCASTING, CLUSTERING

if TYPE_CHECKING:
    from rocketapp.consumer.group.local_offsets import LocalOffsets


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageModel:
    """What a group of one model is made of."""

    name: str
    """As heartbeats say it."""
    is_shared: bool
    """Members share the queues: brokers lock queues for them, and know the offsets of the group."""
    config: ConsumerConfig
    """The settings; those without a meaning in this model are off."""
    retry_topic: str | None
    """Where failed messages come back; None: the group has none."""
    subscriptions: dict[str, SubscriptionData]
    """What brokers hear of every topic, the retry topic included if there is one."""
    trust: Trust
    redelivery: FailedMessages
    """What becomes of failed messages."""
    store: GroupOffsets
    """Where the offsets of the group are kept."""
    offsets: Offsets
    prompt: Prompt
    """Hears of finished messages of queues in order, whose offset may be committed soon."""
    commits: Commits | None
    """The offsets that pulls carry; None: they carry none."""
    local_offsets: LocalOffsets | None = None
    """The file of this member, which it opens and closes."""
    away_since: Callable[[MessageQueue], float | None] | None = None
    """See `StartOffsets`."""


def message_model(
    group: str,
    topics: Sequence[ConsumedTopic],
    parts: ConsumerParts,
    *,
    brokers: Brokers,
    stall_reasons: StallReasons,
    tasks: Tasks,
) -> MessageModel:
    """The model that all topics of the group agree in."""
    if any(topic.broadcast for topic in topics):
        return _broadcasting(group, topics, parts, tasks)
    return _clustering(group, topics, parts, brokers, stall_reasons)


def _clustering(
    group: str, topics: Sequence[ConsumedTopic], parts: ConsumerParts, brokers: Brokers, stall_reasons: StallReasons
) -> MessageModel:
    retry, config, trust = retry_topic(group), parts.config, Trust(_now())
    store: GroupOffsets = brokers
    if parts.offset_store is not None:
        from rocketapp.consumer.group.plugin_offsets import PluginOffsets

        store = PluginOffsets(parts.offset_store, group=group, brokers=brokers, timeout=config.commit_timeout)
    offsets = _offsets(group, parts, store, trust)
    redelivery = Redelivery(
        group=group,
        brokers=brokers,
        sender=parts.producer,
        observe=parts.observe,
        stall_reasons=stall_reasons,
        random=parts.random,
        send_timeout=config.send_back_timeout,
        has_locks=any(topic.needs_lock for topic in topics),
        app_version=parts.app_version,
    )
    return MessageModel(
        name=CLUSTERING,
        is_shared=True,
        config=config,
        retry_topic=retry,
        subscriptions=_subscriptions(topics, retry, parts),
        trust=trust,
        redelivery=redelivery,
        store=store,
        offsets=offsets,
        prompt=offsets.prompt,
        commits=offsets,
    )


def _broadcasting(group: str, topics: Sequence[ConsumedTopic], parts: ConsumerParts, tasks: Tasks) -> MessageModel:
    from rocketapp.consumer.group.local_offsets import LocalOffsets, folder_of
    from rocketapp.consumer.retry.dropping import Dropping

    trust, subscriptions = Unshared(_now()), _subscriptions(topics, None, parts)
    folder = folder_of(parts.config.broadcast_dir, cluster=parts.cluster, group=group)
    store = LocalOffsets(folder, parts.worker, group=group, observe=parts.observe, tasks=tasks)
    return MessageModel(
        name=BROADCASTING,
        is_shared=False,
        # Each member pulls what it wants itself, and sending back slow messages takes a retry topic.
        config=replace(parts.config, subscription_guard="off", send_back_slow=False),
        retry_topic=None,
        subscriptions=subscriptions,
        trust=trust,
        redelivery=Dropping(group, parts.observe),
        store=store,
        offsets=_offsets(group, parts, store, trust),
        prompt=no_prompt,
        commits=None,
        local_offsets=store,
        away_since=store.away_since,
    )


def _subscriptions(
    topics: Sequence[ConsumedTopic], retry: str | None, parts: ConsumerParts
) -> dict[str, SubscriptionData]:
    return subscriptions_of(topics, retry, version=int(parts.clock.now() * 1000))


def _offsets(group: str, parts: ConsumerParts, store: GroupOffsets, trust: Trust) -> Offsets:
    interval = parts.config.commit_interval
    return Offsets(group=group, store=store, observe=parts.observe, interval=interval, trust=trust)


def _now() -> float:
    return asyncio.get_running_loop().time()
