"""One group of an app: starts and stops the loops that consume for it, in order.

Start: routes, heartbeat, first rebalance, start positions; then pulls. The heartbeat comes before the first pull: a
broker hands out messages to members only.

Stop: every queue ends its pulls, then its handlers, commits with an answer, and gives back its lock, all queues side
by side; then the rebalancer, the workers, the redelivery, and last the membership. Until then brokers take us for a
member, so that no other one gets a queue that still drains. Nothing waits for a broker that has to be dialled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from rocketapp.consumer.assembly import Group
from rocketapp.consumer.direct import message_of
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.parts import ConsumerParts
from rocketapp.errors import ProtocolError, RocketAppError
from rocketapp.model.event import Adjusted, LoopFailed, TopicMissing
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.model.route import TopicRoute
from rocketapp.model.snapshot import GroupSnapshot
from rocketapp.model.stats import HandlerStats
from rocketapp.model.subscription import TAGS, Start
from rocketapp.wire.requests.clients import (
    FROM_FIRST,
    FROM_LAST,
    FROM_TIMESTAMP,
    ConsumerData,
)
from rocketapp.wire.requests.direct import DirectRequest, DirectResult
from rocketapp.wire.requests.running_info import RunningInfo

if TYPE_CHECKING:
    from rocketapp.consumer.idle import IdleReport

__all__ = ["HandlerStats", "PushConsumer"]

_JOIN_PATIENCE = 1.0
"""Seconds in which brokers are reached before a member joins without those that are dead or do not answer."""
_JOIN_LOOK = 0.1
"""Seconds between looks whether all expected members are there."""


class PushConsumer:
    """A member of one consumer group."""

    def __init__(
        self, *, group: str, topics: Sequence[ConsumedTopic], parts: ConsumerParts, expected_members: int = 1
    ) -> None:
        """`expected_members`: how many processes of the app join the group together (`run --workers`)."""
        self._name, self._client, self._config, self._observe = group, parts.client, parts.config, parts.observe
        self._blocked_loop, self._clock = parts.blocked_loop, parts.clock
        self._topics = tuple(topics)
        if parts.traces is not None:
            from rocketapp.consumer.traced import traced

            self._topics = traced(self._topics, group, parts.traces, f"{parts.random.getrandbits(64):016X}")
        self._loop = asyncio.get_running_loop()
        self._group = Group(group, self._topics, parts)
        # Members of a broadcast group share nothing, and need not wait for each other.
        self._expected_members = expected_members if self._group.model.is_shared else 1
        self._rebalancer, self._tasks = self._group.rebalancer, self._group.tasks
        self._watched: list[str] = []
        self._rebalancing: asyncio.Task[Any] | None = None

    def __repr__(self) -> str:
        unfinished = sum(len(each.process_queue or ()) for each in self._rebalancer.owned.values())
        return f"<PushConsumer {self._name}: {len(self._rebalancer.owned)} queues, {unfinished} unfinished>"

    # What the client asks of a member.

    def consumer_data(self) -> ConsumerData:
        """What heartbeats tell of this group."""
        starts = [topic.start for topic in self._topics]
        return ConsumerData(
            self._name,
            message_model=self._group.model.name,
            consume_from=_consume_from(starts[0]) if starts else FROM_LAST,
            subscriptions=self._group.guard.told,
        )

    def running_info(self, *, with_stacks: bool = False) -> RunningInfo:
        """What our own handlers want, what we pull, and what we do with each queue."""
        from rocketapp.consumer import running_info

        loop_started = self._clock.now() - self._loop.time()
        return running_info.of_group(self._group, self._config, loop_started=loop_started, with_stacks=with_stacks)

    def done_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """By queue of the topic the offset below which everything is done."""
        owned = self._rebalancer.owned.items()
        found = {queue: each.process_queue for queue, each in owned if queue.topic == topic and each.popped is None}
        return {queue: each.commit_offset for queue, each in found.items() if each is not None}

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator has moved the group: what is in hand of our queues among these is not committed any more."""
        for queue, offset in offsets.items():
            if (owned := self._rebalancer.owned.get(queue)) is not None:
                owned.move(offset)

    def consume_directly(self, request: DirectRequest, record: bytes) -> asyncio.Future[DirectResult] | str:
        """Another member, or an administrator, has us consume one stored message."""
        try:
            message = message_of(request, record)
        except ProtocolError as error:
            return str(error)
        return self._group.direct.take(message, by_member=request.queue_offset >= 0)

    def members_changed(self) -> None:
        """A broker says that a member joined or left; the embedded one also that a topic has been created."""
        routes = self._client.routes
        for topic in self._group.model.subscriptions:
            if routes.get(topic) is None:
                routes.refresh_soon(topic)
        self._cover_retry_topic()
        self._rebalancer.wake()

    def routes_changed(self) -> None:
        """Queues or brokers of some topic are others than before."""
        self._cover_retry_topic()
        self._rebalancer.wake()

    def _cover_retry_topic(self) -> None:
        """Ask for its route while it lacks a broker of the topics: members with other routes share it otherwise."""
        if (topic := self._group.model.retry_topic) is None:
            return
        routes = self._client.routes
        retry = routes.get(topic)
        covered = _brokers(retry) if retry is not None else set()
        # Most often the retry topic is on every broker, and then not all of 1,000 topics are looked at.
        if not covered.issuperset(routes.broker_names()) and any(
            _brokers(route) - covered for topic in self._group.model.subscriptions if (route := routes.get(topic))
        ):
            # A broker makes the retry topic when it hears our first heartbeat, and tells name servers after that.
            (routes.refresh_soon if retry is None else routes.lacks_a_broker)(topic)

    def broker_lost(self, broker_names: Sequence[str]) -> None:
        """Others may get our queues of these brokers: offsets and locks there are in doubt."""
        for name in broker_names:
            self._group.leases.suspend(name)
            self._rebalancer.broker_lost(name)

    def broker_back(self, broker_names: Sequence[str]) -> None:
        """Locks first: until we ask, a broker that forgot them gives them to any member."""
        for name in broker_names:
            self._group.leases.ask_now(name)
            self._rebalancer.broker_back(name)

    # The life of a consumer.

    async def join(self) -> None:
        """Become a member, and fix where its queues begin; nothing is pulled before `begin`.

        Raises ConfigError and SetupError for what cannot work.
        """
        if self._group.model.local_offsets is not None:
            self._group.model.local_offsets.open()
        await asyncio.gather(*(self._watch_route(topic) for topic in self._group.model.subscriptions))
        if not any(map(self._client.routes.get, self._group.model.subscriptions)):
            # Some broker must know of us, to tell us when a topic is created: the one that would create it.
            await self._watch_route(DEFAULT_TOPIC)
        await self._check_brokers()
        await self._group.guard.compare()
        self._client.register_consumer(self._name, self)
        beating = self._tasks.start(self._client.heartbeat(), f"first heartbeat of {self._name}")
        await asyncio.wait([beating], timeout=_JOIN_PATIENCE)
        if beating.done() and not beating.result():
            # No broker takes it. That may be an outage; but when they want keys, and have none, it never ends.
            await self._client.check_keys()
        if (retry := self._group.model.retry_topic) is not None and await self._fetch(retry) is None:
            self._client.routes.refresh_soon(retry)
        self._cover_retry_topic()
        routes = {topic: self._client.routes.get(topic) for topic in self._group.model.subscriptions}
        for consumed in self._topics:
            if routes[consumed.topic] is None:
                self._observe(TopicMissing(self._name, consumed.topic))
        self._group.starts.joined(
            queue
            for topic, route in routes.items()
            if route
            for queue in route.readable_queues(topic)
            if self._group.brokers.is_connected(queue.broker_name)
        )
        self._tasks.start(self._rebalancer.detect_freeze(), f"detect freezes of {self._name}")
        await self._group.guard.agreed()
        await self._rebalancer.rebalance()
        # Before anything else is asked for: a broker may not answer for seconds, and members join meanwhile.
        self._rebalancing = self._tasks.start(self._rebalancer.run(), f"rebalance {self._name}")
        # An assignment asks by itself when its broker is reached.
        pulled = [queue for queue, each in self._rebalancer.owned.items() if each.popped is None]
        reached = [queue for queue in pulled if self._group.brokers.is_connected(queue.broker_name)]
        # What is sent while the queues of a new topic wait for a member that knows it must not be missed.
        popped = [] if self._group.popped is None else [*map(self._queues_of, self._group.popped.tables)]
        waiting = [queue for topic in self._group.guard.unknown_elsewhere() for queue in self._queues_of(topic)]
        await asyncio.gather(*map(self._fix_start, dict.fromkeys([*reached, *waiting, *chain.from_iterable(popped)])))
        self._tasks.start(self._group.watch.run(), f"watch {self._name}")
        if self._config.concurrency_most:
            from rocketapp.consumer.concurrency_growth import ConcurrencyGrowth

            growth = ConcurrencyGrowth(self._group.concurrently, self._rebalancer.owned, self._config.adjust_backlog)
            self._tasks.start(growth.run(), f"adjust {self._name}")
        if self._blocked_loop is not None:
            self._blocked_loop.join(self)

    def begin(self) -> None:
        """Pull: at once, or when all expected members are there."""
        if self._expected_members > 1:
            self._tasks.start(self._begin_together(), f"begin {self._name}")
        else:
            self._begin()

    async def stop(self, *, drain_timeout: float, cut: asyncio.Event) -> bool:
        """Leave; whether everything that was started has been finished and committed.

        Handlers may run for `drain_timeout` seconds, or until `cut` is set.
        """
        self._group.direct.stop()
        self._group.elsewhere.stop()
        is_clean = await self._rebalancer.give_back_all(cut, drain_timeout)
        if self._rebalancing is not None:
            self._rebalancing.cancel()
        self._group.stopping.stop()
        await asyncio.gather(*(way.stop() for way in self._group.ways))
        await self._group.model.redelivery.stop()
        await self._group.model.offsets.stop()
        await self._group.leases.stop()
        await self._tasks.close()
        if self._group.model.local_offsets is not None:
            self._group.model.local_offsets.close()
        self._group.watch.look()
        if self._blocked_loop is not None:
            self._blocked_loop.leave(self)
        # A broker frees the locks of a member that leaves, and a thread may still run under one: it has to expire.
        await self._client.unregister(self._name, tell=not self._group.leases.has_dropped)
        for topic in self._watched:
            self._client.routes.unwatch(topic)
        return is_clean

    def halt(self) -> None:
        """In a forked child: start nothing more. The parent stays the member."""
        for way in self._group.ways:
            way.halt()
        if self._group.model.local_offsets is not None:
            self._group.model.local_offsets.close()

    # Pauses.

    def pause(self, topic: str, reason: str) -> None:
        """Start no more handlers of this topic and pull no more of its messages, until `resume` lifts the reason.

        Its queues and locks are kept, and what was pulled as well. Messages of it that come back for a retry wait too.
        """
        self._group.pausing.pause(topic, reason)

    def resume(self, topic: str, reason: str | None = None) -> None:
        """Lift this reason, or without one all reasons. The topic goes on when its last reason is lifted."""
        self._group.pausing.resume(topic, reason)

    def adjust(self, changes: Mapping[str, Mapping[str, float | None]]) -> None:
        """From now on these limits hold, by topic of the group, or its retry topic."""
        from rocketapp.consumer.adjust import adjust

        adjust(self._group, changes)
        for topic, values in changes.items():
            words = [f"{name} {'as at the start' if one is None else f'{one:g}'}" for name, one in values.items()]
            self._observe(Adjusted(self._name, topic, ", ".join(words)))

    # What is going on.

    async def idle(self) -> IdleReport:
        """Whether anything is left to do; brokers are asked how far their queues reach."""
        from rocketapp.consumer import idle

        return await idle.report(
            rebalancer=self._rebalancer,
            offsets=self._group.model.offsets,
            redelivery=self._group.model.redelivery,
            brokers=self._group.brokers,
            now=self._loop.time(),
        )

    def snapshot(self, cluster: str) -> GroupSnapshot:
        """What the group is doing now; `cluster` is its name in the app."""
        from rocketapp.consumer import snapshot

        members = len(self._rebalancer.members)
        return snapshot.of_group(
            self._group,
            cluster=cluster,
            client_id=self._client.client_id,
            members=members,
            reasons=self.standing_still(),
        )

    @property
    def counters(self) -> HandlerStats:
        """The counters of all handlers together, since the start."""
        return self._group.stats.total()

    def standing_still(self) -> dict[MessageQueue, str]:
        """Every queue that does not move, and why."""
        group = self._group
        found: dict[MessageQueue, str] = {}
        # All of them: a call that runs for long is often the cause of the other reason.
        for reasons in (group.stall_reasons.reasons(), group.waits.reasons(), group.watch.running_long()):
            for where, reason in reasons.items():
                queue = where if group.popped is None else self._popped_of(where)
                found[queue] = f"{found[queue]}; {reason}" if queue in found else reason
        return found

    # Inside.

    async def _check_brokers(self) -> None:
        """Raises SetupError where brokers cannot do what the topics need."""
        known = [DEFAULT_TOPIC, *self._group.model.subscriptions]
        if any(topic.data.expression_type != TAGS for topic in self._topics):
            from rocketapp.consumer.group.filters import check_filters

            await check_filters(self._name, self._topics, self._client.client_id, self._group.brokers, known)
        if self._group.popped is not None:
            from rocketapp.consumer.group.pop_support import check_pop

            await check_pop(self._name, self._topics, self._client.client_id, self._group.brokers, known)

    def _popped_of(self, where: MessageQueue) -> MessageQueue:
        """A call knows the queue of its message; a popped topic stands for all queues of a broker."""
        from rocketapp.wire.requests.assignment import ALL_QUEUES

        popped = where._replace(queue_id=ALL_QUEUES)
        return popped if popped in self._rebalancer.owned else where

    def _begin(self) -> None:
        if not self._group.begun.done():
            self._group.begun.set_result(None)

    async def _begin_together(self) -> None:
        until = self._loop.time() + self._config.join_timeout
        while len(self._rebalancer.members) < self._expected_members and self._loop.time() < until:
            # Brokers notify of members that join, but a notification may be lost.
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

    def _queues_of(self, topic: str) -> list[MessageQueue]:
        """Those of brokers that are reached."""
        route = self._client.routes.get(topic)
        queues = () if route is None else route.readable_queues(topic)
        return [queue for queue in queues if self._group.brokers.is_connected(queue.broker_name)]

    async def _fix_start(self, queue: MessageQueue) -> None:
        try:
            await self._group.starts.fix(queue)
        except RocketAppError as error:
            # The assignment asks again, and pulls nothing before it knows. It may be gone by now.
            if queue in self._rebalancer.owned:
                self._group.stall_reasons.still(queue, f"its offset cannot be read: {error}", kind="offset")


def _brokers(route: TopicRoute) -> set[str]:
    return {data.broker_name for data in route.queues}


def _consume_from(start: Start) -> str:
    if isinstance(start, datetime):
        return FROM_TIMESTAMP
    return FROM_FIRST if start == "first" else FROM_LAST
