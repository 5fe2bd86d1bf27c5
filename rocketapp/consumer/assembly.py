"""Puts the objects of one consumer group together, each after those that it uses, and is done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from rocketapp.consumer.adjusting import Adjusting
from rocketapp.consumer.brokers import Brokers, Slaves
from rocketapp.consumer.handler import ConsumedTopic, Handler, subscriptions_of
from rocketapp.consumer.items import first_of
from rocketapp.consumer.limits import Limits
from rocketapp.consumer.member import GroupStats, Member
from rocketapp.consumer.offsets.commits import Commits
from rocketapp.consumer.owned import NewAssignments, Owned
from rocketapp.consumer.parts import ConsumerParts
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.consumer.queues.assignment import Assignments
from rocketapp.consumer.queues.leases import Leases
from rocketapp.consumer.queues.rebalancer import Rebalancer
from rocketapp.consumer.queues.start import Starts
from rocketapp.consumer.retry.attempts import Attempts
from rocketapp.consumer.retry.breaker import Stopping
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.rollout.check import SubscriptionCheck
from rocketapp.consumer.rollout.forward import Failures, Forwarding, Taking
from rocketapp.consumer.stalls import StallReasons
from rocketapp.consumer.watch.figures import Figures
from rocketapp.consumer.watch.slow_calls import SlowCalls
from rocketapp.consumer.ways.by_offset import SentBack
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import Keep, Way
from rocketapp.consumer.ways.table import ways_of
from rocketapp.model.handler_kind import ORDERLY, POPPED
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import retry_topic
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.trust import Trust, Unshared
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message

# What only some groups need is imported where it is made: every start would pay for it.
if TYPE_CHECKING:
    from rocketapp.consumer.offsets.local import LocalOffsets
    from rocketapp.consumer.offsets.stores import GroupOffsets
    from rocketapp.consumer.pop.way import PopWay
    from rocketapp.consumer.retry.slow import SlowSendBack


def new_consumer(
    *, group: str, topics: Sequence[ConsumedTopic], parts: ConsumerParts, expected_members: int = 1
) -> PushConsumer:
    """The consumer of one group. Needs a running loop; nothing is started, and nothing is asked of a broker.

    `expected_members`: how many processes of the app join the group together (`run --workers`).
    """
    topics = tuple(topics)
    if parts.traces is not None:
        from rocketapp.consumer.traced import traced

        topics = traced(topics, group, parts.traces, f"{parts.random.getrandbits(64):016X}")
    loop = asyncio.get_running_loop()
    member = _member(group, topics, parts)
    local = _local_offsets(member, parts)
    trust = Unshared(loop.time()) if member.broadcast else Trust(loop.time())
    commits = Commits(member, local or _store(member, parts), trust)
    has_locks = not member.broadcast and any(topic.needs_lock for topic in topics)
    redelivery = Redelivery(member, parts.producer, has_locks=has_locks, app_version=parts.app_version)
    send_back = _slow_send_back(member, redelivery)
    stopping = Stopping(member.stats.handlers, member.pausing)

    owned: dict[MessageQueue, Owned] = {}
    check = SubscriptionCheck(member, topics, owned=owned)
    forwarding = Forwarding(member, topics, check=check, owned=owned)

    # How the queues are consumed.

    def new_completion(
        process_queue: ProcessQueue[Message], handler: Handler, keep: Keep, failures: Failures | None = None
    ) -> SentBack:
        return SentBack(process_queue, handler, keep, redelivery=failures or redelivery, stopping=stopping)

    in_turn = [topic.topic for topic in topics if topic.kind is ORDERLY and not topic.broadcast]
    attempts = Attempts(member, in_turn)
    context = WayContext(
        member=member,
        redelivery=redelivery,
        stopping=stopping,
        new_completion=new_completion,
        attempts=attempts,
        threads=parts.threads,
        journal=parts.journal,
        forwarding=forwarding,
        released=send_back,
        prompt=commits.prompt,
    )
    ways = ways_of(topics, context)
    concurrent, popped = ways.concurrently, _pop_way(topics, context)
    modes: tuple[Way, ...] = concurrent, *ways.others, *(() if popped is None else (popped,))

    def in_flight() -> list[tuple[Handler, Any]]:
        return [call for mode in modes for call in mode.in_hand()]

    taking = Taking(member, topics, mode=concurrent, new_completion=new_completion)

    # The queues.
    leases = Leases(member, is_unchanged=commits.is_unchanged)
    starts = Starts(
        member,
        topics,
        ways.of_topics,
        store=commits.store,
        trust=trust,
        leases=leases,
        attempts=attempts,
        local=local,
    )
    begun: asyncio.Future[None] = loop.create_future()

    others: dict[str, NewAssignments] = {}
    if popped is not None:
        from rocketapp.consumer.pop.assignment import PopAssignments

        pop = PopAssignments(
            popped,
            member,
            flow_control=parts.flow_control,
            starts=starts,
            redelivery=redelivery,
            stopping=stopping,
            epochs=count(1),
            begun=begun,
        )
        others = dict.fromkeys(popped.tables, pop)
    assignments = Assignments(
        member,
        {topic: ways.of_topics.get(topic, concurrent) for topic in member.subscriptions},
        starts=starts,
        leases=leases,
        commits=commits,
        flow_control=parts.flow_control,
        forwarding=forwarding,
        others=others,
        begun=begun,
    )
    rebalancer = Rebalancer(
        member,
        owned=owned,
        check=check,
        trust=trust,
        assignments=assignments,
        popped=() if popped is None else popped.tables,
        doubts=commits.look_soon,
        in_hand=lambda: [(handler, first_of(item)) for handler, item in in_flight()],
        allocation=parts.allocation,
    )

    figures = Figures(
        member,
        modes,
        rebalancer=rebalancer,
        commits=commits,
        leases=leases,
        redelivery=redelivery,
        check=check,
        forwarding=forwarding,
        slow_calls=SlowCalls(member, modes, rebalancer.owned, concurrent=concurrent, send_back=send_back),
    )
    return PushConsumer(
        member,
        topics,
        modes=modes,
        popped=() if popped is None else popped.tables,
        assignments=assignments,
        rebalancer=rebalancer,
        starts=starts,
        leases=leases,
        commits=commits,
        local=local,
        redelivery=redelivery,
        stopping=stopping,
        check=check,
        taking=taking,
        figures=figures,
        adjusting=Adjusting(member, modes, rebalancer.owned, concurrent=concurrent),
        blocked_loop=parts.blocked_loop,
        # Members of a broadcast group share nothing, and need not wait for each other.
        expected_members=1 if member.broadcast else expected_members,
    )


def _member(group: str, topics: Sequence[ConsumedTopic], parts: ConsumerParts) -> Member:
    observe, client, config, now = parts.observe, parts.client, parts.config, asyncio.get_running_loop().time
    broadcast = any(topic.broadcast for topic in topics)
    if broadcast:
        # Each member pulls what it wants itself, and sending back slow messages takes a retry topic.
        config = replace(config, subscription_check="off", send_back_slow=False)
    retry = None if broadcast else retry_topic(group)
    limits, tasks = Limits(config), Tasks(observe)
    slaves = Slaves(group=group, client=client, observe=observe)
    return Member(
        name=group,
        client_id=client.client_id,
        client=client,
        broadcast=broadcast,
        subscriptions=subscriptions_of(topics, retry, version=int(parts.clock.now() * 1000)),
        retry_topic=retry,
        brokers=Brokers(group=group, client=client, limits=limits, random=parts.random, tasks=tasks, slaves=slaves),
        config=config,
        limits=limits,
        stats=GroupStats(handler for topic in topics for handler in topic.handlers),
        pausing=Pausing(),
        stalls=StallReasons(group, observe, now),
        waits=StallReasons(group, observe, now),
        observe=observe,
        tasks=tasks,
        clock=parts.clock,
        random=parts.random,
        max_inflated_bytes=parts.max_inflated_bytes,
    )


def _local_offsets(member: Member, parts: ConsumerParts) -> LocalOffsets | None:
    if not member.broadcast:
        return None
    from rocketapp.consumer.offsets.local import LocalOffsets, folder_of

    folder = folder_of(parts.config.broadcast_dir, cluster=parts.cluster, group=member.name)
    return LocalOffsets(member, folder, parts.worker)


def _store(member: Member, parts: ConsumerParts) -> GroupOffsets:
    if parts.offset_store is None:
        return member.brokers
    from rocketapp.consumer.offsets.stores import PluginOffsets

    return PluginOffsets(
        parts.offset_store, group=member.name, brokers=member.brokers, timeout=member.config.commit_timeout
    )


def _slow_send_back(member: Member, redelivery: Redelivery) -> SlowSendBack | None:
    if not member.config.send_back_slow:
        return None
    from rocketapp.consumer.retry.slow import SlowSendBack

    return SlowSendBack(redelivery)


# Of topics whose messages brokers hand out one by one.


def _pop_way(topics: Sequence[ConsumedTopic], context: WayContext) -> PopWay | None:
    popped = [topic for topic in topics if topic.kind is POPPED]
    if not popped:
        return None
    from rocketapp.consumer.pop.way import PopWay

    return PopWay(popped, context)
