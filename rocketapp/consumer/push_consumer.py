"""One group of an app: starts and stops the loops that consume for it, in order.

Start: routes, heartbeat, first rebalance, start positions; then pulls. The heartbeat comes before the first pull: a
broker hands out messages to members only.

Stop: every queue ends its pulls, then its handlers, commits with an answer, and gives back its lock, all queues side
by side; then the rebalancer, the workers, the redelivery, and last the membership. Until then brokers take us for a
member, so that no other one gets a queue that still drains. Nothing waits for a broker that has to be dialled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from rocketapp.client.calls.clients import check_subscription
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.member import Member, Owned
from rocketapp.consumer.modes.delivery import ModeContext
from rocketapp.consumer.modes.table import Modes
from rocketapp.consumer.offsets.commits import Commits
from rocketapp.consumer.offsets.stores import OffsetStore, offsets_of
from rocketapp.consumer.pull.flow import FlowControl
from rocketapp.consumer.queues.leases import Leases
from rocketapp.consumer.queues.rebalancer import Rebalancer
from rocketapp.consumer.queues.start import Starts
from rocketapp.consumer.retry.attempts import FailedAttempts
from rocketapp.consumer.retry.breaker import FailurePauses
from rocketapp.consumer.retry.redelivery import Redelivery, SendRaw
from rocketapp.consumer.rollout.check import SubscriptionCheck
from rocketapp.consumer.rollout.forward import Forwarder, ForwardReceiver
from rocketapp.consumer.watch.figures import Figures, IdleReport
from rocketapp.consumer.workers.callers import Callers
from rocketapp.consumer.workers.in_threads import MakeThreads, Threads
from rocketapp.errors import BrokerError, KeysRefused, ProtocolError, RocketAppError, SetupError, TransportError
from rocketapp.model.event import Adjusted, LoopFailed, TopicMissing
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.model.route import TopicRoute
from rocketapp.model.snapshot import GroupSnapshot, HandlerStats
from rocketapp.model.subscription import TAGS, Start
from rocketapp.tasks import repeat
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.requests.clients import (
    BROADCASTING,
    CLUSTERING,
    FROM_FIRST,
    FROM_LAST,
    FROM_TIMESTAMP,
    ConsumerData,
)
from rocketapp.wire.requests.direct import DirectRequest, DirectResult
from rocketapp.wire.requests.running_info import RunningInfo

_JOIN_PATIENCE = 1.0
"""Seconds in which brokers are reached before a member joins without those that are dead or do not answer."""
_CHECK_PATIENCE = 1.0
"""Seconds in which a broker is reached and answers what is asked before anything is consumed."""
_JOIN_LOOK = 0.1
"""Seconds between looks whether all expected members are there."""
_BACKLOG_LOOK, _BACKLOG_ENOUGH = 60.0, 0.8
"""Seconds between looks at the backlog, and the share of it below which fewer calls run."""
_MOST_TIMES = 1 << 16


class PushConsumer:
    """This process as a running member of one consumer group."""

    def __init__(
        self,
        member: Member,
        *,
        send_raw: SendRaw,
        flow_control: FlowControl,
        offset_store: OffsetStore | None = None,
        journal: Journal | None = None,
        threads: MakeThreads = Threads,
        expected_members: int = 1,
    ) -> None:
        """Puts the parts of the group together, each after those that it uses. Nothing is started.

        `send_raw` sends retries and dead letters. `flow_control`: one for all groups of an app, which bounds the bytes
        that they hold. `offset_store` keeps the offsets in place of the brokers. `journal`: one for all groups of a
        process, which notes down what it has in flight. `threads` makes those of sync handlers.
        `expected_members`: how many processes of the app join the group together (`run --workers`).
        """
        self._member, self._topics, self._client, self._tasks = member, member.topics, member.client, member.tasks
        # Members of a broadcast group share nothing, and need not wait for each other.
        self._expected_members = 1 if member.broadcast else expected_members
        self._loop = asyncio.get_running_loop()
        self._watched: list[str] = []

        self._commits = commits = Commits(member, offsets_of(member, offset_store))
        self._redelivery = Redelivery(member, send_raw)
        self._stopping = FailurePauses(member)
        self._check = SubscriptionCheck(member)
        callers = Callers(member, threads, journal)
        forwarding = Forwarder(member, self._check, callers)
        attempts = FailedAttempts(member, self._redelivery, self._stopping)

        context = ModeContext(
            member=member,
            redelivery=self._redelivery,
            stopping=self._stopping,
            attempts=attempts,
            callers=callers,
            journal=journal,
            forwarding=forwarding,
            prompt=commits.prompt,
        )
        self._modes = modes = Modes(context)
        self._taking = ForwardReceiver(member, modes.concurrent)

        self._leases = Leases(member, commits)
        self._starts = Starts(member, modes, commits=commits, leases=self._leases, attempts=attempts)
        self._rebalancer = Rebalancer(member, modes, starts=self._starts, flow_control=flow_control, check=self._check)

        self._figures = Figures(
            member,
            modes,
            rebalancer=self._rebalancer,
            commits=commits,
            redelivery=self._redelivery,
            check=self._check,
        )

    def __repr__(self) -> str:
        unfinished = sum(len(each.process_queue or ()) for each in self._member.owned.values())
        return f"<PushConsumer {self._member.name}: {len(self._member.owned)} queues, {unfinished} unfinished>"

    # What the client asks of a member.

    def consumer_data(self) -> ConsumerData:
        """What heartbeats tell of this group."""
        starts = [topic.start for topic in self._topics]
        return ConsumerData(
            self._member.name,
            message_model=BROADCASTING if self._member.broadcast else CLUSTERING,
            consume_from=_consume_from(starts[0]) if starts else FROM_LAST,
            subscriptions=self._check.told,
        )

    def running_info(self, *, with_stacks: bool = False, brief: bool = False) -> RunningInfo:
        """What our own handlers want, what we pull, and unless `brief` what we do with each queue."""
        return self._check.info() if brief else self._figures.running_info(with_stacks=with_stacks)

    def done_offsets(self, topic: str) -> dict[MessageQueue, int]:
        """By queue of the topic the offset below which everything is done."""
        owned = self._member.owned.items()
        found = {queue: each.process_queue for queue, each in owned if queue.topic == topic and each.popped is None}
        return {queue: each.commit_offset for queue, each in found.items() if each is not None}

    def move(self, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator has moved the group: what is in flight of our queues among these is not committed any more."""
        for queue, offset in offsets.items():
            if (owned := self._member.owned.get(queue)) is not None:
                owned.move(offset)

    async def consume_directly(self, request: DirectRequest, record: bytes) -> DirectResult:
        """Another member, or an administrator, has us consume one stored message."""
        return await self._taking.take(request, record)

    def members_changed(self) -> None:
        """A broker says that a member joined or left; the embedded one also that a topic has been created."""
        routes = self._client.routes
        for topic in self._member.subscriptions:
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
        if (topic := self._member.retry_topic) is None:
            return
        routes = self._client.routes
        retry = routes.get(topic)
        covered = _brokers(retry) if retry is not None else set()
        # Most often the retry topic is on every broker, and then not all of 1,000 topics are looked at.
        if not covered.issuperset(routes.broker_names()) and any(
            _brokers(route) - covered for topic in self._member.subscriptions if (route := routes.get(topic))
        ):
            # A broker makes the retry topic when it hears our first heartbeat, and tells name servers after that.
            (routes.refresh_soon if retry is None else routes.lacks_a_broker)(topic)

    def broker_lost(self, broker_names: Sequence[str]) -> None:
        """Others may get our queues of these brokers: offsets and locks there are uncertain."""
        for name in broker_names:
            self._leases.suspend(name)
            self._rebalancer.broker_lost(name)

    def broker_back(self, broker_names: Sequence[str]) -> None:
        """Locks first: until we ask, a broker that forgot them gives them to any member."""
        for name in broker_names:
            self._leases.renew_now(name)
            self._rebalancer.broker_back(name)

    # The life of a consumer.

    async def join(self) -> None:
        """Become a member, and fix where its queues begin; nothing is pulled before `begin`.

        Raises ConfigError and SetupError for what cannot work.
        """
        self._commits.store.open()
        await asyncio.gather(*(self._watch_route(topic) for topic in self._member.subscriptions))
        if not any(map(self._client.routes.get, self._member.subscriptions)):
            # Some broker must know of us, to tell us when a topic is created: the one that would create it.
            await self._watch_route(DEFAULT_TOPIC)
        await self._check_brokers()
        await self._check.compare()
        self._client.register_consumer(self._member.name, self)
        beating = self._tasks.start(self._client.heartbeat(), f"first heartbeat of {self._member.name}")
        await asyncio.wait([beating], timeout=_JOIN_PATIENCE)
        if beating.done() and not beating.result():
            # No broker takes it. That may be an outage; but when they want keys, and have none, it never ends.
            await self._client.check_keys()
        if (retry := self._member.retry_topic) is not None and await self._fetch(retry) is None:
            self._client.routes.refresh_soon(retry)
        self._cover_retry_topic()
        for consumed in self._topics:
            if self._client.routes.get(consumed.topic) is None:
                self._member.observe(TopicMissing(self._member.name, consumed.topic))
        self._starts.joined(self._queues_of(self._member.subscriptions))
        self._tasks.start(self._rebalancer.detect_freeze(), f"detect freezes of {self._member.name}")
        await self._check.agreed()
        await self._rebalancer.rebalance()
        # Before anything else is asked for: a broker may not answer for seconds, and members join meanwhile.
        self._tasks.start(self._rebalancer.run(), f"rebalance {self._member.name}")
        # An assignment asks by itself when its broker is reached.
        pulled = [queue for queue, each in self._member.owned.items() if each.popped is None]
        reached = [queue for queue in pulled if self._member.brokers.is_connected(queue.broker_name)]
        # What is sent while the queues of a new topic wait for a member that knows it must not be missed.
        others = self._queues_of([*self._check.unknown_to_others(), *self._member.popped])
        await asyncio.gather(*map(self._fix_start, dict.fromkeys([*reached, *others])))
        self._tasks.start(self._figures.run(), f"watch {self._member.name}")
        if self._member.config.concurrency_most:
            self._tasks.start(repeat(_BACKLOG_LOOK, self._follow_backlog), f"adjust {self._member.name}")

    def begin(self) -> None:
        """Pull: at once, or when all expected members are there."""
        if self._expected_members > 1:
            self._tasks.start(self._begin_together(), f"begin {self._member.name}")
        else:
            self._member.begun.set_result(None)

    async def stop(self, *, drain_timeout: float, cut: asyncio.Event) -> bool:
        """Leave; whether everything that was started has been finished and committed.

        Handlers may run for `drain_timeout` seconds, or until `cut` is set.
        """
        self._taking.stop()
        is_clean = await self._rebalancer.give_back_all(cut, drain_timeout)
        await self._taking.told(cut)
        self._stopping.stop()
        await self._modes.callers.stop()
        # What waits to be sent back was not committed: the queue's next owner gets it again. Locks left expire.
        await self._tasks.close()
        self._commits.store.close()
        self._figures.look()
        # A broker frees the locks of a member that leaves, and a thread may still run under one: it has to expire.
        await self._client.unregister(self._member.name, tell=not self._leases.has_dropped)
        for topic in self._watched:
            self._client.routes.unwatch(topic)
        return is_clean

    def halt(self) -> None:
        """In a forked child: start nothing more. The parent stays the member."""
        self._modes.callers.halt()
        self._commits.store.close()

    # Pauses.

    def pause(self, topic: str, reason: str) -> None:
        """Start no more handlers of this topic and pull no more of its messages, until `resume` lifts the reason.

        Its queues and locks are kept, and what was pulled as well. Messages of it that come back for a retry wait too.
        """
        self._member.pauses.pause(topic, reason)

    def resume(self, topic: str, reason: str | None = None) -> None:
        """Lift this reason, or without one all reasons. The topic goes on when its last reason is lifted."""
        self._member.pauses.resume(topic, reason)

    def adjust(self, changes: Mapping[str, Mapping[str, float | None]]) -> None:
        """From now on these limits hold, by topic of the group or its retry topic; None: as at the start."""
        member, limits = self._member, self._member.limits
        for topic, values in changes.items():
            limits.change(topic, values)
        for handler in member.stats.handlers:
            about = handler.subscription
            if about.topic in changes:
                now = limits.changed.get(about.topic, {})
                concurrency, rate = int(now.get("concurrency", 0)) or None, now.get("rate", about.rate)
                batch = None if about.batch is None else int(now.get("batch", about.batch))
                self._modes.callers.pace(handler, concurrency, rate, batch)
        for queue, owned in member.owned.items():
            if queue.topic in changes:
                owned.limits_changed()
        for topic, values in changes.items():
            words = [f"{name} {'as at the start' if one is None else f'{one:g}'}" for name, one in values.items()]
            member.observe(Adjusted(member.name, topic, ", ".join(words)))

    def _follow_backlog(self) -> None:
        """As Java's client plans it, concurrent handlers run more calls at once while many messages wait.

        From the backlog of the settings on, their number doubles with each look, up to the most of each handler; below
        a share of it, it is halved, down to what is declared.
        """
        waiting, backlog = sum(map(_waiting, self._member.owned.values())), self._member.config.adjust_backlog
        times = self._modes.callers.times
        if waiting >= backlog:
            times = min(2 * times, _MOST_TIMES)
        elif waiting < _BACKLOG_ENOUGH * backlog:
            times = max(1, times // 2)
        if times != self._modes.callers.times:
            self._modes.callers.grow(times)

    # What is going on.

    async def idle(self) -> IdleReport:
        """Whether anything is left to do; brokers are asked how far their queues reach."""
        return await self._figures.idle()

    def snapshot(self) -> GroupSnapshot:
        """What the group is doing now."""
        return self._figures.snapshot()

    @property
    def counters(self) -> HandlerStats:
        """The counters of all handlers together, since the start."""
        return self._member.stats.total()

    # Inside.

    async def _check_brokers(self) -> None:
        """Raises SetupError where brokers cannot filter by SQL or hand out single messages, and a topic needs that.

        A topic that does not exist yet may come to any broker of the others: it is refused when all of them do.
        A broker that does not answer stops no start: its queues say so.
        """
        brokers = self._member.brokers
        asking = [(topic, True) for topic in self._topics if topic.is_popped]
        asking += [(topic, False) for topic in self._topics if topic.data.expression_type != TAGS]
        also = [DEFAULT_TOPIC, *self._member.subscriptions] if asking else []
        everywhere = sorted({name for topic in also for name in brokers.brokers_of(topic)})
        for topic, to_pop in asking:
            # A popped topic may do with some of its brokers: the queues of the others say what is missing.
            there = () if to_pop else brokers.brokers_of(topic.topic)
            asked = (self._refusal(topic, name, to_pop=to_pop) for name in there or everywhere)
            refused = [refusal for refusal in await asyncio.gather(*asked) if refusal is not None]
            if refused and (there or len(refused) == len(everywhere)):
                raise refused[0]

    async def _refusal(self, topic: ConsumedTopic, broker_name: str, *, to_pop: bool) -> SetupError | None:
        """Why this broker does not take the topic's SQL expression, or, asked `to_pop`, hand out single messages."""
        member = self._member
        try:
            async with asyncio.timeout(_CHECK_PATIENCE):
                connection = await member.brokers.connection(broker_name)
                if to_pop:
                    from rocketapp.client.calls import pop
                    from rocketapp.wire.requests.assignment import AssignmentQuestion

                    question = AssignmentQuestion(topic.topic, member.name, member.client_id)
                    await pop.assigned(connection, question, _CHECK_PATIENCE)
                else:
                    await check_subscription(connection, member.client_id, member.name, topic.data, _CHECK_PATIENCE)
        except (TransportError, TimeoutError, ProtocolError, KeysRefused):
            return None  # it refuses the pulls later, which is then told
        except BrokerError as error:
            if to_pop and error.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                return None
            if to_pop:
                problem = f'mode="pop" of topic {topic.topic!r}: broker {broker_name} does not have it'
                mend = 'use Apache RocketMQ 5.0 or later, or mode="push"'
            else:
                is_wrong = error.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
                problem = f"sql={topic.data.expression!r} of topic {topic.topic!r}: broker {broker_name} refuses it"
                mend = "correct it" if is_wrong else "set enablePropertyFilter=true there, or filter by tags="
                problem = f"{problem}: {error.remark}"
            return SetupError(topic.handlers[0].subscription.place, f"{problem}: {mend}")
        return None

    async def _begin_together(self) -> None:
        until = self._loop.time() + self._member.config.join_timeout
        while len(self._rebalancer.members) < self._expected_members and self._loop.time() < until:
            # Brokers notify of members that join, but a notification may be lost.
            self._rebalancer.wake()
            await asyncio.sleep(_JOIN_LOOK)
        self._member.begun.set_result(None)

    async def _watch_route(self, topic: str) -> None:
        self._watched.append(topic)
        self._client.routes.watch(topic)
        await self._fetch(topic)

    async def _fetch(self, topic: str) -> TopicRoute | None:
        try:
            return await self._client.routes.fetch(topic)
        except RocketAppError as error:
            # It is watched: the client goes on asking.
            self._member.observe(LoopFailed("routes", str(error)))
            return None

    def _queues_of(self, topics: Iterable[str]) -> list[MessageQueue]:
        """The queues of these topics on brokers that are connected."""
        routes = [(topic, self._client.routes.get(topic)) for topic in topics]
        queues = [queue for topic, route in routes if route is not None for queue in route.readable_queues(topic)]
        return [queue for queue in queues if self._member.brokers.is_connected(queue.broker_name)]

    async def _fix_start(self, queue: MessageQueue) -> None:
        try:
            await self._starts.fix(queue)
        except RocketAppError as error:
            # The assignment asks again, and pulls nothing before it knows. It may be gone by now.
            if queue in self._member.owned:
                self._member.blocked.because(queue, f"its offset cannot be read: {error}", kind="offset")


def _waiting(owned: Owned) -> int:
    """Messages of a queue that are not finished, as of the last answer of its broker."""
    process_queue = owned.process_queue
    if process_queue is None or process_queue.broker_end is None:
        return 0
    return max(0, process_queue.broker_end - process_queue.end_offset) + len(process_queue)


def _brokers(route: TopicRoute) -> set[str]:
    return {data.broker_name for data in route.queues}


def _consume_from(start: Start) -> str:
    if isinstance(start, datetime):
        return FROM_TIMESTAMP
    return FROM_FIRST if start == "first" else FROM_LAST
