"""Puts the objects of one consumer group together, each after those that it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from rocketapp.consumer.assignment import Assignment, AssignmentContext
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.hand_over import HandOver
from rocketapp.consumer.group.leases import Leases
from rocketapp.consumer.group.offsets import Offsets
from rocketapp.consumer.group.rebalancer import Rebalancer
from rocketapp.consumer.group.start_offsets import StartOffsets
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.parts import ConsumerParts
from rocketapp.consumer.pull.flow_control import Flow
from rocketapp.consumer.pull.puller import PullContext
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.consumer.stats import HandlerStats
from rocketapp.consumer.watch import Unmatched, Watch
from rocketapp.consumer.ways.concurrent import Concurrently
from rocketapp.consumer.ways.orderly import Orderly
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import retry_topic
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.pull_gate import PullGate
from rocketapp.state.trust import Trust
from rocketapp.tasks import Tasks


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """The objects of one consumer group."""

    subscriptions: Mapping[str, SubscriptionData]
    """What brokers hear of every topic, the retry topic included."""
    all_stats: Mapping[int, HandlerStats]
    """One per handler, by the handler's id."""
    tasks: Tasks
    begun: asyncio.Future[None]
    """Done when pulls may start."""
    brokers: Brokers
    trust: Trust
    stall_reasons: StallReasons
    redelivery: Redelivery
    unmatched: Unmatched
    concurrently: Concurrently
    orderly: Orderly
    watch: Watch
    offsets: Offsets
    starts: StartOffsets
    leases: Leases
    rebalancer: Rebalancer


def assemble(group: str, topics: Sequence[ConsumedTopic], parts: ConsumerParts) -> Group:
    """Needs a running loop; nothing is started, and nothing is asked of a broker."""
    config, observe, now = parts.config, parts.observe, asyncio.get_running_loop().time
    subscriptions = _subscriptions(topics, retry_topic(group), version=int(parts.clock.now() * 1000))
    all_stats = {id(handler): HandlerStats(handler) for topic in topics for handler in topic.handlers}
    orderly_topics = frozenset(topic.topic for topic in topics if topic.orderly)
    tasks = Tasks(observe)
    begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    brokers = Brokers(group=group, client=parts.client, config=config, random=parts.random, tasks=tasks)
    trust = Trust(now())
    stall_reasons = StallReasons(group, observe, now)
    redelivery = _redelivery(group, brokers, parts, mixed=bool(orderly_topics))
    unmatched = Unmatched()
    concurrently = Concurrently(topics, all_stats, redelivery=redelivery, unmatched=unmatched.count, observe=observe)
    orderly = _orderly(group, topics, all_stats, redelivery, unmatched, parts)
    watch = Watch(
        group=group,
        all_stats=all_stats.values(),
        in_hand=lambda: concurrently.in_hand() + orderly.in_hand(),
        unmatched=unmatched,
        stall_reasons=stall_reasons,
        warning=config.handler_warning,
        observe=observe,
    )
    offsets = Offsets(group=group, brokers=brokers, observe=observe, interval=config.commit_interval, trust=trust)
    starts = StartOffsets(
        brokers, {topic.topic: topic.start for topic in topics}, lambda queue: trust.is_trusted(queue, now())
    )
    leases = Leases(brokers=brokers, config=config, observe=observe)
    context = AssignmentContext(
        group=group,
        pull=_pull_context(brokers, offsets, stall_reasons, parts),
        starts=starts,
        concurrently=concurrently,
        orderly=orderly,
        leases=leases,
        hand_over=HandOver(brokers, observe),
        tasks=tasks,
        epochs=count(1),
        begun=begun,
    )
    rebalancer = Rebalancer(
        group=group,
        topics=tuple(subscriptions),
        client=parts.client,
        brokers=brokers,
        trust=trust,
        assignments=_Assignments(subscriptions, orderly_topics, context),
        regained=offsets.flush_soon,
        interval=config.rebalance_interval,
        observe=observe,
    )
    return Group(
        subscriptions=subscriptions,
        all_stats=all_stats,
        tasks=tasks,
        begun=begun,
        brokers=brokers,
        trust=trust,
        stall_reasons=stall_reasons,
        redelivery=redelivery,
        unmatched=unmatched,
        concurrently=concurrently,
        orderly=orderly,
        watch=watch,
        offsets=offsets,
        starts=starts,
        leases=leases,
        rebalancer=rebalancer,
    )


def _redelivery(group: str, brokers: Brokers, parts: ConsumerParts, *, mixed: bool) -> Redelivery:
    return Redelivery(
        group=group,
        brokers=brokers,
        sender=parts.producer,
        observe=parts.observe,
        random=parts.random,
        send_timeout=parts.config.send_back_timeout,
        mixed=mixed,
        app_version=parts.app_version,
    )


def _orderly(
    group: str,
    topics: Sequence[ConsumedTopic],
    all_stats: Mapping[int, HandlerStats],
    redelivery: Redelivery,
    unmatched: Unmatched,
    parts: ConsumerParts,
) -> Orderly:
    return Orderly(
        topics,
        all_stats,
        group=group,
        redelivery=redelivery,
        unmatched=unmatched.count,
        observe=parts.observe,
        suspend=parts.config.suspend,
    )


class _Assignments:
    """Makes the assignments of one group."""

    def __init__(
        self,
        subscriptions: Mapping[str, SubscriptionData],
        orderly_topics: frozenset[str],
        context: AssignmentContext,
    ) -> None:
        self._subscriptions, self._orderly_topics, self._context = subscriptions, orderly_topics, context

    def new(self, queue: MessageQueue, *, handed_over: bool) -> Assignment:
        is_orderly = queue.topic in self._orderly_topics
        subscription = self._subscriptions[queue.topic]
        return Assignment(queue, subscription, self._context, is_orderly=is_orderly, handed_over=handed_over)


def _pull_context(brokers: Brokers, offsets: Offsets, stall_reasons: StallReasons, parts: ConsumerParts) -> PullContext:
    config = parts.config
    gate = PullGate(
        max_messages=config.queue_max_messages,
        max_bytes=config.queue_max_bytes,
        max_span=config.queue_max_span,
        budget=parts.flow_control,
    )
    return PullContext(
        brokers=brokers,
        offsets=offsets,
        flow=Flow(gate, parts.flow_control),
        stall_reasons=stall_reasons,
        observe=parts.observe,
        config=config,
        max_inflated_bytes=parts.max_inflated_bytes,
        heartbeat=brokers.heartbeat_soon,
        refresh=parts.client.routes.refresh_soon,
    )


def _subscriptions(topics: Sequence[ConsumedTopic], retry: str, version: int) -> dict[str, SubscriptionData]:
    """What brokers hear of every topic. One version for the life of the process: they compare it with that of pulls."""
    found = {topic.topic: replace(topic.data, version=version) for topic in topics}
    found[retry] = SubscriptionData(retry, version=version)
    return found
