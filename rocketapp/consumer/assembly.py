"""Puts the objects of one consumer group together, each after those that it uses."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from rocketapp.consumer.assignment_context import AssignmentContext
from rocketapp.consumer.assignment_maker import AssignmentMaker
from rocketapp.consumer.behind_suspects import BehindSuspects
from rocketapp.consumer.direct import DirectCalls
from rocketapp.consumer.group.asked_members import AskedMembers
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.guard import SubscriptionGuard
from rocketapp.consumer.group.leases import Leases
from rocketapp.consumer.group.rebalancer import Rebalancer
from rocketapp.consumer.group.shared_attempts import SharedAttempts
from rocketapp.consumer.group.slaves import Slaves
from rocketapp.consumer.group.start_offsets import StartOffsets
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.items import first_of
from rocketapp.consumer.limits import Limits
from rocketapp.consumer.message_model import MessageModel, message_model
from rocketapp.consumer.parts import ConsumerParts
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.progress import Progress
from rocketapp.consumer.pull.puller import PullContext, PullCounters
from rocketapp.consumer.rates import Rates
from rocketapp.consumer.retry.stopping import Stopping
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.consumer.stats import GroupStats
from rocketapp.consumer.wanted_elsewhere import WantedElsewhere
from rocketapp.consumer.watch import Watch
from rocketapp.consumer.ways.concurrent import ConcurrentWay
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import Keep, Way
from rocketapp.consumer.ways.retries_in_place import RetryContext
from rocketapp.consumer.ways.sent_back import SentBack
from rocketapp.consumer.ways.table import ways_of
from rocketapp.model.handler_kind import ORDERLY, POPPED
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import TAGS
from rocketapp.state.failed_attempts import FailedAttempts
from rocketapp.state.pauses import Pauses
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message

# What only some groups need is imported where it is made: every start would pay for it.
if TYPE_CHECKING:
    from rocketapp.consumer.assignment_maker import Popping
    from rocketapp.consumer.group.broker_shares import BrokerShares
    from rocketapp.consumer.pop.way import PopWay
    from rocketapp.consumer.retry.releasing import Released, Releasing


class Group:
    """The objects of one consumer group."""

    def __init__(self, name: str, topics: Sequence[ConsumedTopic], parts: ConsumerParts) -> None:
        """Needs a running loop; nothing is started, and nothing is asked of a broker."""
        observe, loop = parts.observe, asyncio.get_running_loop()
        self.name: str = name
        self._parts, self._topics = parts, topics
        self.pull_counters: PullCounters = PullCounters()
        self.limits: Limits = Limits(parts.config)
        self.stats: GroupStats = GroupStats(handler for topic in topics for handler in topic.handlers)
        self.tasks: Tasks = Tasks(observe)
        self.pausing: Pausing = Pausing(Pauses())
        self.stopping: Stopping = Stopping(self.stats.handlers, self.pausing)
        self.begun: asyncio.Future[None] = loop.create_future()
        """Done when pulls may start."""
        self.stall_reasons: StallReasons = StallReasons(name, observe, loop.time)
        self.waits: StallReasons = StallReasons(name, observe, loop.time)
        """Queues that wait for a free call of their handler. They are pulled all the same."""
        self.slaves: Slaves = Slaves(group=name, client=parts.client, observe=observe)
        self.brokers: Brokers = Brokers(
            group=name,
            client=parts.client,
            limits=self.limits,
            random=parts.random,
            tasks=self.tasks,
            slaves=self.slaves,
        )
        self.model: MessageModel = message_model(
            name, topics, parts, brokers=self.brokers, stall_reasons=self.stall_reasons, tasks=self.tasks
        )
        self.guard: SubscriptionGuard = self._new_guard()
        self.elsewhere: WantedElsewhere = self._new_elsewhere()
        self.released: Released | None = self._new_released()
        self._make_ways()
        self.direct: DirectCalls = self._new_direct()
        """What others have this member consume."""
        self.starts: StartOffsets = self._new_starts()
        self.leases: Leases = self._new_leases()
        self.rebalancer: Rebalancer = self._new_rebalancer()
        self.progress: Progress = Progress(self.rebalancer.owned, loop.time)
        self.rates: Rates = Rates(self.stats, self.pull_counters.messages, loop.time)
        self.watch: Watch = self._new_watch()

    def __repr__(self) -> str:
        return f"<Group {self.name}: {len(self.model.subscriptions)} topics>"

    def _make_ways(self) -> None:
        """How the queues are consumed."""
        context = self._new_way_context()
        ways = ways_of(self._topics, context)
        self.concurrently: ConcurrentWay = ways.concurrently
        self._own_ways: dict[str, Way] = ways.of_topics
        self.popped: PopWay | None = self._new_pop_way(context)
        """The way of topics whose messages brokers hand out one by one; None without such topics."""
        self.ways: tuple[Way, ...] = self.concurrently, *ways.others, *(() if self.popped is None else (self.popped,))

    def _new_pop_way(self, context: WayContext) -> PopWay | None:
        popped = [topic for topic in self._topics if topic.kind is POPPED]
        if not popped:
            return None
        from rocketapp.consumer.pop.way import PopWay

        return PopWay(popped, context)

    def _new_starts(self) -> StartOffsets:
        now, model = asyncio.get_running_loop().time, self.model
        return StartOffsets(
            model.store,
            self.brokers,
            {topic.topic: topic.start for topic in self._topics},
            lambda queue: model.trust.is_confirmed(queue.topic, now()),
            joined=self._parts.clock.now(),
            begins={topic: way.own_start for topic, way in self._own_ways.items() if way.own_start is not None},
            away_since=model.away_since,
            is_shared=model.is_shared,
            popped=() if self.popped is None else self.popped.tables,
        )

    def _new_guard(self) -> SubscriptionGuard:
        parts, retry, subscriptions = self._parts, self.model.retry_topic, self.model.subscriptions
        return SubscriptionGuard(
            group=self.name,
            own={topic: data for topic, data in subscriptions.items() if topic != retry},
            retry=None if retry is None else subscriptions[retry],
            fixed=[one.topic for one in self._topics if not one.by_message or one.data.expression_type != TAGS],
            asked=AskedMembers(self.name, parts.client, self.brokers),
            brokers=self.brokers,
            config=self.model.config,
            now=parts.clock.now,
            observe=parts.observe,
            tasks=self.tasks,
            start_over=self._pull_anew,
            is_shared=self.model.is_shared,
        )

    def _pull_anew(self, topics: Collection[str]) -> None:
        for queue, owned in self.rebalancer.owned.items():
            if queue.topic in topics:
                owned.pull_anew()

    def _new_direct(self) -> DirectCalls:
        tables, record = self.concurrently.tables, self.concurrently.record
        # What a plugin consumes is not done when its handler returns.
        tables = {topic.topic: tables[topic.topic] for topic in self._topics if topic.by_message}
        return DirectCalls(tables=tables, new_completion=self._new_completion, pausing=self.pausing, record=record)

    def _new_elsewhere(self) -> WantedElsewhere:
        return WantedElsewhere(
            group=self.name,
            topics=self._topics,
            guard=self.guard,
            brokers=self.brokers,
            stats=self.stats,
            stall_reasons=self.stall_reasons,
            retries=self._parts.config.retries,
        )

    def _new_way_context(self) -> WayContext:
        parts, attempts = self._parts, FailedAttempts()
        in_turn = [topic.topic for topic in self._topics if topic.kind is ORDERLY and not topic.broadcast]
        self.shared_attempts: SharedAttempts = SharedAttempts(
            topics=in_turn, brokers=self.brokers, attempts=attempts, tasks=self.tasks
        )
        tell, suspend = self.shared_attempts.failed, parts.config.suspend
        return WayContext(
            group=self.name,
            stats=self.stats,
            observe=parts.observe,
            stall_reasons=self.stall_reasons,
            waits=self.waits,
            retries=RetryContext(
                self.name, self.model.redelivery, parts.observe, self.stopping, suspend, attempts=attempts, tell=tell
            ),
            new_completion=self._new_completion,
            threads=parts.threads,
            crashes=parts.crashes,
            elsewhere=self.elsewhere,
            released=self.released,
            prompt=self.model.prompt,
            locked=self.model.is_shared,
        )

    def _new_completion(self, process_queue: ProcessQueue[Message], handler: Handler, keep: Keep) -> SentBack:
        failed = self.released or self.model.redelivery
        return SentBack(process_queue, handler, keep, redelivery=failed, stopping=self.stopping)

    def _new_leases(self) -> Leases:
        return Leases(
            brokers=self.brokers,
            config=self._parts.config,
            stall_reasons=self.stall_reasons,
            observe=self._parts.observe,
            is_unchanged=self.model.offsets.is_unchanged,
        )

    def _new_watch(self) -> Watch:
        crashes, releasing, looks = self._parts.crashes, self._new_releasing(), [self.progress.look, self.rates.look]
        if crashes is not None:
            looks.append(BehindSuspects(crashes.line, self._unfinished, self.stall_reasons).look)
        if releasing is not None:
            looks.append(releasing.look)
        return Watch(
            group=self.name,
            stats=self.stats,
            in_hand=self._in_hand,
            stall_reasons=(self.stall_reasons, self.waits),
            warning=self._parts.config.handler_warning,
            observe=self._parts.observe,
            looks=looks,
            releasing=releasing,
        )

    def _new_released(self) -> Released | None:
        if not self.model.config.send_back_slow:
            return None
        from rocketapp.consumer.retry.releasing import Released

        return Released(self.model.redelivery)

    def _new_releasing(self) -> Releasing | None:
        if self.released is None:
            return None
        from rocketapp.consumer.retry.releasing import Releasing

        return Releasing(
            self.released, self.model.redelivery, in_hand=self.concurrently.in_hand, owned=self.rebalancer.owned
        )

    def _unfinished(self) -> list[MessageQueue]:
        """Queues with messages in hand. Plugins count no crashes, and brokers count those of popped messages."""
        without = {topic.topic for topic in self._topics if not topic.by_message}
        return [
            queue
            for queue, owned in self.rebalancer.owned.items()
            if owned.process_queue is not None
            and len(owned.process_queue)
            and owned.popped is None
            and queue.topic not in without
        ]

    def _new_rebalancer(self) -> Rebalancer:
        parts = self._parts
        subscriptions = self.model.subscriptions
        ways = {topic: self._own_ways.get(topic, self.concurrently) for topic in subscriptions}
        return Rebalancer(
            group=self.name,
            topics=tuple(subscriptions),
            client=parts.client,
            brokers=self.brokers,
            trust=self.model.trust,
            assignments=AssignmentMaker(subscriptions, ways, self._new_context(), self._popping()),
            shares=self._new_shares(),
            doubts=self.model.offsets.look_soon,
            in_hand=lambda: [(handler, first_of(item)) for handler, item in self._in_hand()],
            interval=parts.config.rebalance_interval,
            allocation=parts.allocation,
            observe=parts.observe,
            seen=self.guard.look,
            broadcast=not self.model.is_shared,
        )

    def _new_shares(self) -> BrokerShares | None:
        if self.popped is None:
            return None
        from rocketapp.consumer.group.broker_shares import BrokerShares

        client_id = self._parts.client.client_id
        return BrokerShares(self.popped.tables, group=self.name, client_id=client_id, brokers=self.brokers)

    def _popping(self) -> Popping | None:
        if self.popped is None:
            return None
        from rocketapp.consumer.pop.context import PopContext

        parts = self._parts
        context = PopContext(
            group=self.name,
            brokers=self.brokers,
            limits=self.limits,
            flow_control=parts.flow_control,
            pausing=self.pausing,
            starts=self.starts,
            queues_of=self.queues_of,
            redelivery=self.model.redelivery,
            stopping=self.stopping,
            stall_reasons=self.stall_reasons,
            counters=self.pull_counters,
            tasks=self.tasks,
            observe=parts.observe,
            epochs=count(1),
            begun=self.begun,
            max_inflated_bytes=parts.max_inflated_bytes,
            refresh=parts.client.routes.refresh_soon,
        )
        return self.popped, context

    def queues_of(self, popped: MessageQueue) -> list[MessageQueue]:
        """The queues behind one that stands for all of a broker."""
        route = self._parts.client.routes.get(popped.topic)
        queues = () if route is None else route.readable_queues(popped.topic)
        return [queue for queue in queues if queue.broker_name == popped.broker_name]

    def _in_hand(self) -> list[tuple[Handler, Any]]:
        return [call for way in self.ways for call in way.in_hand()]

    def _new_context(self) -> AssignmentContext:
        return AssignmentContext(
            group=self.name,
            brokers=self.brokers,
            offsets=self.model.offsets,
            store=self.model.store,
            limits=self.limits,
            flow_control=self._parts.flow_control,
            pausing=self.pausing,
            topics=tuple(topic.topic for topic in self._topics),
            pull=self._new_pull_context(),
            starts=self.starts,
            leases=self.leases,
            tasks=self.tasks,
            epochs=count(1),
            begun=self.begun,
            recall=self.shared_attempts.recall,
            taken=self.direct.running,
        )

    def _new_pull_context(self) -> PullContext:
        parts = self._parts
        return PullContext(
            source=self.brokers,
            commits=self.model.commits,
            stall_reasons=self.stall_reasons,
            observe=parts.observe,
            retry_delay=parts.config.pull_retry_delay,
            max_inflated_bytes=parts.max_inflated_bytes,
            heartbeat=self.brokers.heartbeat_soon,
            refresh=parts.client.routes.refresh_soon,
            counters=self.pull_counters,
            copies=self.slaves,
            interval=self.limits.pull_interval,
        )
