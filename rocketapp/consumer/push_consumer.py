"""One group of an app: assembles the loops that consume for it, and starts and stops them in order.

Start: routes, heartbeat, first rebalance, start positions; then pulls. Stop: rebalance,
pulls, handlers, commits, locks, membership. The heartbeat comes before the first pull, and
every offset is committed with an answer before the group is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count
from random import Random
from typing import Any

from rocketapp.client.instance import ClientInstance
from rocketapp.clock import Clock
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer import idle
from rocketapp.consumer.assignment import Assignment, AssignmentContext
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.hand_over import HandOver
from rocketapp.consumer.group.leases import Leases
from rocketapp.consumer.group.offsets import Offsets
from rocketapp.consumer.group.rebalancer import Rebalancer
from rocketapp.consumer.group.start_offsets import StartOffsets
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.idle import IdleReport
from rocketapp.consumer.pull.flow_control import Flow
from rocketapp.consumer.pull.puller import PullContext
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.retry.sender import RawSender
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.consumer.stats import HandlerStats
from rocketapp.consumer.watch import Watch
from rocketapp.consumer.ways.concurrent import Concurrently
from rocketapp.consumer.ways.orderly import Orderly
from rocketapp.errors import RocketAppError
from rocketapp.model.event import LoopFailed, Observe, TopicMissing
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DEFAULT_TOPIC, retry_topic
from rocketapp.model.route import TopicRoute
from rocketapp.model.subscription import Start, SubscriptionData
from rocketapp.state.cache_budget import CacheBudget
from rocketapp.state.pull_gate import PullGate
from rocketapp.tasks import Tasks
from rocketapp.wire.requests.clients import FROM_FIRST, FROM_LAST, FROM_TIMESTAMP, ConsumerData

__all__ = ["Counters", "IdleReport", "PushConsumer"]

_JOIN_LOOK = 0.1
"""Seconds between looks whether all expected members are there."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a consumer has done since it started."""

    handled: int = 0
    retried: int = 0
    """Send-backs and retries in place."""
    dead_lettered: int = 0
    unmatched: int = 0
    """Messages that no handler wanted."""


class PushConsumer:
    """A member of one consumer group."""

    def __init__(
        self,
        *,
        group: str,
        topics: Sequence[ConsumedTopic],
        client: ClientInstance,
        producer: RawSender,
        config: ConsumerConfig,
        clock: Clock,
        random: Random,
        observe: Observe,
        cache: CacheBudget,
        app_version: str = "",
        expected_members: int = 1,
        max_inflated_bytes: int = 16_777_216,
    ) -> None:
        """`expected_members`: how many processes of the app join the group together (`run --workers`)."""
        self._group, self._client, self._config, self._observe = group, client, config, observe
        self._topics, self._expected_members = tuple(topics), expected_members
        self._retry_topic = retry_topic(group)
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks(observe)
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._subscriptions = _subscriptions(topics, self._retry_topic, version=int(clock.now() * 1000))
        self._orderly_topics = frozenset(topic.topic for topic in topics if topic.orderly)
        self._all_stats = {id(handler): HandlerStats(handler) for topic in topics for handler in topic.handlers}
        self._brokers = Brokers(group=group, client=client, config=config, random=random)
        self._stall_reasons = StallReasons(group, observe, self._loop.time)
        self._redelivery = Redelivery(
            group=group,
            brokers=self._brokers,
            sender=producer,
            observe=observe,
            random=random,
            send_timeout=config.send_back_timeout,
            mixed=bool(self._orderly_topics),
            app_version=app_version,
        )
        self._rebalancer = self._new_rebalancer()
        rules = {topic.topic: topic.start for topic in topics}
        self._starts = StartOffsets(self._brokers, rules, self._rebalancer.trusted)
        self._watch = self._new_watch()
        self._offsets = self._new_offsets()
        self._context = self._new_context(cache, max_inflated_bytes)
        self._watched: list[str] = []
        self._rebalancing: asyncio.Task[Any] | None = None
        self._beating: asyncio.Task[Any] | None = None

    # Assembly.

    def _new_rebalancer(self) -> Rebalancer:
        return Rebalancer(
            group=self._group,
            topics=tuple(self._subscriptions),
            client=self._client,
            brokers=self._brokers,
            make=self._new_assignment,
            regained=self._commit_soon,
            interval=self._config.rebalance_interval,
            observe=self._observe,
        )

    def _new_watch(self) -> Watch:
        return Watch(
            group=self._group,
            all_stats=self._all_stats.values(),
            in_hand=lambda: self._context.concurrently.in_hand() + self._context.orderly.in_hand(),
            stall_reasons=self._stall_reasons,
            warning=self._config.handler_warning,
            observe=self._observe,
        )

    def _new_offsets(self) -> Offsets:
        return Offsets(
            group=self._group,
            brokers=self._brokers,
            observe=self._observe,
            interval=self._config.commit_interval,
            trusted=self._rebalancer.trusted,
        )

    def _new_pull_context(self, cache: CacheBudget, max_inflated_bytes: int) -> PullContext:
        config = self._config
        gate = PullGate(
            max_messages=config.queue_max_messages,
            max_bytes=config.queue_max_bytes,
            max_span=config.queue_max_span,
            budget=cache,
        )
        return PullContext(
            brokers=self._brokers,
            offsets=self._offsets,
            flow=Flow(gate, cache),
            stall_reasons=self._stall_reasons,
            observe=self._observe,
            config=config,
            max_inflated_bytes=max_inflated_bytes,
            heartbeat=self._heartbeat_soon,
            refresh=self._client.routes.refresh_soon,
        )

    def _new_context(self, cache: CacheBudget, max_inflated_bytes: int) -> AssignmentContext:
        shared: dict[str, Any] = {
            "redelivery": self._redelivery,
            "unmatched": self._watch.count_unmatched,
            "observe": self._observe,
        }
        suspend = self._config.suspend
        return AssignmentContext(
            group=self._group,
            pull=self._new_pull_context(cache, max_inflated_bytes),
            starts=self._starts,
            concurrently=Concurrently(self._topics, self._all_stats, **shared),
            orderly=Orderly(self._topics, self._all_stats, group=self._group, suspend=suspend, **shared),
            leases=Leases(brokers=self._brokers, config=self._config, observe=self._observe),
            hand_over=HandOver(self._brokers, self._observe),
            tasks=self._tasks,
            epochs=count(1),
            begun=self._begun,
        )

    def _new_assignment(self, queue: MessageQueue, is_handed_over: bool) -> Assignment:
        return Assignment(
            queue,
            self._subscriptions[queue.topic],
            self._context,
            is_orderly=queue.topic in self._orderly_topics,
            handed_over=is_handed_over,
        )

    def __repr__(self) -> str:
        unfinished = sum(len(each.process_queue or ()) for each in self._rebalancer.owned.values())
        return f"<PushConsumer {self._group}: {len(self._rebalancer.owned)} queues, {unfinished} unfinished>"

    # What the client asks of a member.

    def consumer_data(self) -> ConsumerData:
        """What heartbeats tell of this group."""
        starts = [topic.start for topic in self._topics]
        return ConsumerData(
            self._group,
            consume_from=_consume_from(starts[0]) if starts else FROM_LAST,
            subscriptions=tuple(self._subscriptions.values()),
        )

    def members_changed(self) -> None:
        """A broker says that somebody joined or left; the embedded one also that a topic has been created."""
        routes = self._client.routes
        for topic in self._subscriptions:
            if routes.get(topic) is None:
                routes.refresh_soon(topic)
        self._rebalancer.wake()

    def routes_changed(self) -> None:
        """Queues or brokers of some topic are others than before."""
        routes = self._client.routes
        known = {name for topic in self._subscriptions if (route := routes.get(topic)) for name in _brokers(route)}
        retry = routes.get(self._retry_topic)
        if known - (_brokers(retry) if retry is not None else set()):
            # A broker makes the retry topic when it hears our first heartbeat.
            routes.refresh_soon(self._retry_topic)
        self._rebalancer.wake()

    def broker_lost(self) -> None:
        """Others may take our queues for theirs: nothing is committed before the group was looked at again."""
        self._rebalancer.distrust()

    def broker_back(self) -> None:
        """Whoever was cut off with us comes back as well."""
        self._rebalancer.regroup()

    # The life of a consumer.

    async def join(self) -> None:
        """Become a member, and fix where its queues begin; nothing is pulled before `begin`."""
        await asyncio.gather(*(self._watch_route(topic) for topic in self._subscriptions))
        if not any(map(self._client.routes.get, self._subscriptions)):
            # Some broker must know of us, to tell us when a topic is created: the one that would create it.
            await self._watch_route(DEFAULT_TOPIC)
        self._client.register_consumer(self._group, self)
        await self._client.heartbeat()
        if await self._fetch(self._retry_topic) is None:
            self._client.routes.refresh_soon(self._retry_topic)
        routes = {topic: self._client.routes.get(topic) for topic in self._subscriptions}
        for consumed in self._topics:
            if routes[consumed.topic] is None:
                self._observe(TopicMissing(self._group, consumed.topic))
        self._starts.joined(queue for topic, route in routes.items() if route for queue in route.readable_queues(topic))
        self._rebalancer.is_fresh_start = self._expected_members > 1
        self._tasks.start(self._rebalancer.detect_freeze(), f"pulse {self._group}")
        await self._rebalancer.rebalance()
        self._rebalancer.is_fresh_start = 0 < len(self._rebalancer.members) < self._expected_members
        await asyncio.gather(*(self._fix_start(queue) for queue in list(self._rebalancer.owned)))
        self._rebalancing = self._tasks.start(self._rebalancer.run(), f"rebalance {self._group}")
        self._tasks.start(self._offsets.run(), f"commit {self._group}")
        self._tasks.start(self._watch.run(), f"watch {self._group}")

    def begin(self) -> None:
        """Pull: at once, or when all expected members are there."""
        if self._expected_members > 1:
            self._tasks.start(self._begin_together(), f"begin {self._group}")
        else:
            self._begin()

    async def stop(self, *, drain_timeout: float, cut: asyncio.Event) -> bool:
        """Leave; whether everything that was started has been finished and committed.

        Handlers may run for `drain_timeout` seconds, or until `cut` is set.
        """
        # The group is looked at as long as handlers run: a queue that others got meanwhile is not committed any more.
        is_clean = await self._rebalancer.give_back_all(cut, drain_timeout)
        if self._rebalancing is not None:
            self._rebalancing.cancel()
        await asyncio.gather(self._context.concurrently.stop(), self._context.orderly.stop())
        await self._redelivery.stop()
        await self._context.leases.stop()
        await self._tasks.close()
        self._watch.look()
        await self._client.unregister(self._group)
        for topic in self._watched:
            self._client.routes.unwatch(topic)
        return is_clean

    # What is going on.

    async def idle(self) -> IdleReport:
        """Whether anything is left to do; brokers are asked how far their queues reach."""
        return await idle.report(
            rebalancer=self._rebalancer,
            offsets=self._offsets,
            redelivery=self._redelivery,
            brokers=self._brokers,
            now=self._loop.time(),
        )

    @property
    def counters(self) -> Counters:
        """What has been done so far."""
        all_stats = self._all_stats.values()
        return Counters(
            handled=sum(stats.handled for stats in all_stats),
            retried=sum(stats.retried for stats in all_stats),
            dead_lettered=sum(stats.dead_lettered for stats in all_stats),
            unmatched=sum(self._watch.unmatched.values()),
        )

    def standing_still(self) -> dict[MessageQueue, str]:
        """Every queue that does not move, and why."""
        return {**self._watch.running_long(), **self._stall_reasons.reasons()}

    # Inside.

    def _begin(self) -> None:
        self._rebalancer.is_fresh_start = False
        if not self._begun.done():
            self._begun.set_result(None)

    async def _begin_together(self) -> None:
        until = self._loop.time() + self._config.join_timeout
        while len(self._rebalancer.members) < self._expected_members and self._loop.time() < until:
            # Brokers tell when somebody joins; whether they do is not relied upon.
            self._rebalancer.wake()
            await asyncio.sleep(_JOIN_LOOK)
        self._begin()

    async def _watch_route(self, topic: str) -> None:
        self._watched.append(topic)
        self._client.routes.watch(topic)
        await self._fetch(topic)

    async def _fetch(self, topic: str) -> TopicRoute | None:
        try:
            return await self._client.routes.fetch(topic)
        except RocketAppError as error:
            # It is watched: the client goes on asking.
            self._observe(LoopFailed("routes", str(error)))
            return None

    async def _fix_start(self, queue: MessageQueue) -> None:
        try:
            await self._starts.offset(queue)
        except RocketAppError as error:
            # The assignment asks again, and pulls nothing before it knows.
            self._stall_reasons.still(queue, f"its offset cannot be read: {error}", kind="offset")

    def _commit_soon(self) -> None:
        self._offsets.flush_soon()

    def _heartbeat_soon(self) -> None:
        if self._beating is None or self._beating.done():
            self._beating = self._tasks.start(self._client.heartbeat(), f"heartbeat {self._group}")


def _subscriptions(topics: Sequence[ConsumedTopic], retry: str, version: int) -> dict[str, SubscriptionData]:
    """What brokers hear of every topic. One version for the life of the process: they compare it with that of pulls."""
    found = {topic.topic: replace(topic.data, version=version) for topic in topics}
    found[retry] = SubscriptionData(retry, version=version)
    return found


def _brokers(route: TopicRoute) -> set[str]:
    return {data.broker_name for data in route.queues}


def _consume_from(start: Start) -> str:
    if isinstance(start, datetime):
        return FROM_TIMESTAMP
    return FROM_FIRST if start == "first" else FROM_LAST
