"""This process as a member of one group: what the parts of the group share. It imports none of the parts."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

from rocketapp.client.instance import ClientInstance
from rocketapp.clock import Clock
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.blocked import BlockedQueues
from rocketapp.consumer.brokers import Brokers
from rocketapp.consumer.handler import ConsumedTopic, Handler, subscriptions_of
from rocketapp.errors import RocketAppError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import retry_topic
from rocketapp.model.snapshot import HandlerStats
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.allocation import AVERAGE, Allocation
from rocketapp.state.pauses import Pauses
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message
from rocketapp.wire.requests.assignment import ALL_QUEUES

if TYPE_CHECKING:
    from rocketapp.state.pop_queue import PopQueue

OTHERS = "a handler of another member"
TRY_AGAIN = 1.0
"""Seconds until a session that could not begin is tried again."""


class Member:
    """This process as a member of one group."""

    def __init__(
        self,
        name: str,
        topics: Sequence[ConsumedTopic],
        *,
        client: ClientInstance,
        config: ConsumerConfig,
        clock: Clock,
        random: Random,
        allocation: Allocation = AVERAGE,
        cluster: str = "",
        worker: int | None = None,
        app_version: str = "",
        max_inflated_bytes: int = 16_777_216,
    ) -> None:
        """`client` is started and stopped by its owner. Needs a running loop; nothing is asked of a broker."""
        self.name: str = name
        """The group's name."""
        self.topics: tuple[ConsumedTopic, ...] = tuple(topics)
        self.broadcast: bool = any(topic.broadcast for topic in topics)
        """Every member gets every message: queues, offsets and failures are its own. Otherwise members share them."""
        self.popped: frozenset[str] = frozenset(topic.topic for topic in topics if topic.is_popped)
        """Topics whose messages brokers hand out one by one."""
        if self.broadcast:
            # Each member pulls what it wants itself, and sending back slow messages takes a retry topic.
            config = replace(config, subscription_check="off", send_back_slow=False)
        self.has_locks: bool = not self.broadcast and any(topic.needs_lock for topic in topics)
        """The group locks queues; meanwhile brokers turn a send to its retry topic into a dead letter."""
        self.config: ConsumerConfig = config
        """The settings of the start; `limits` has those in force."""
        self.client: ClientInstance = client
        """This process as brokers and name servers know it, with the routes of all topics."""
        self.client_id: str = client.client_id
        self.observe: Observe = client.observe
        """Receives what happens, as events."""
        self.clock: Clock = clock
        self.random: Random = random
        self.allocation: Allocation = allocation
        """Which queues of a topic are this member's; all members of the group have the same."""
        self.cluster: str = cluster
        """Its name in the app; empty for the unnamed one."""
        self.worker: int | None = worker
        """The number of this process among those of `rocketapp run`, from 1; None: it keeps nothing on disk."""
        self.app_version: str = app_version
        """Written into dead letters."""
        self.max_inflated_bytes: int = max_inflated_bytes
        """The most bytes that a compressed message may become."""
        self.retry_topic: str | None = None if self.broadcast else retry_topic(name)
        """Where failed messages come back; None: the group has none."""
        self.subscriptions: Mapping[str, SubscriptionData] = subscriptions_of(
            topics, self.retry_topic, version=int(clock.now() * 1000)
        )
        """What brokers hear of every topic, the retry topic included if there is one."""
        self.tasks: Tasks = Tasks(self.observe)
        """The owner of what runs beside its caller until the group stops."""
        self.limits: Limits = Limits(config)
        self.stats: GroupStats = GroupStats(handler for topic in topics for handler in topic.handlers)
        self.pauses: Pauses = Pauses()
        self.blocked: BlockedQueues = BlockedQueues(name, self.observe)
        """Why queues are blocked."""
        self.brokers: Brokers = Brokers(name, client, config, random, self.tasks)
        self.owned: dict[MessageQueue, Owned] = {}
        """Every queue that has not been given back completely. The rebalancer keeps it."""
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when messages may be asked for."""
        self.epochs: Iterator[int] = count(1)
        """Each session has the next one."""

    def __repr__(self) -> str:
        return f"<Member {self.client_id} of {self.name}>"

    @property
    def noted_as(self) -> str:
        """Whose it is what is noted down in flight: each worker of a broadcast group has messages of its own."""
        return f"{self.name}/worker-{self.worker}" if self.broadcast else self.name

    def owned_as(self, queue: MessageQueue) -> MessageQueue:
        """The queue that stands for it in `owned`: of a popped topic a broker hands out all queues together."""
        return queue._replace(queue_id=ALL_QUEUES) if queue.topic in self.popped else queue

    def failed(self, loop: str, error: Exception) -> None:
        """A bug has ended a turn of this loop, which goes on: it is told."""
        self.observe(LoopFailed(loop, f"{type(error).__name__}: {error}"))

    async def repeat(self, turn: Callable[[], Awaitable[None]], loop: str, wait: float) -> None:
        """Take turn after turn until cancelled. A bug in one is told, and `wait` seconds later the next one
        begins.
        """
        while True:
            try:
                await turn()
            except Exception as error:
                self.failed(loop, error)
                await asyncio.sleep(wait)


class Owned:
    """One owned queue, from the moment it is acquired until it has been given back: an assignment, pulled or popped."""

    def __init__(self, queue: MessageQueue, member: Member) -> None:
        self.queue: MessageQueue = queue
        self._member: Member = member
        self.process_queue: ProcessQueue[Message] | None = None
        """Of the present session; None between two sessions."""
        self.delivery: Any = None
        """That of the present session (`modes.delivery.Delivery`), or None."""
        self.popped: PopQueue[Message] | None = None
        """In place of offsets, when a broker hands out its messages one by one; None of a queue that is pulled."""
        self.is_clean: bool = True
        """Once it has been given back: whether everything that was started has been finished and committed."""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._cut: asyncio.Future[bool] = self._loop.create_future()
        """Done when no handler is waited for any more: True when the drain was cut, which is not a clean end."""

    @property
    def is_ending(self) -> bool:
        """It is being given back."""
        return self._ended.done()

    @property
    def asked(self) -> SubscriptionData | None:
        """What the pop under way asks for: until it is answered, its broker passes over the rest for all members."""
        return None

    async def run(self) -> None:
        """Consume it, one session after the other; returns when it has been given back."""
        member = self._member
        member.client.routes.hold_broker(self.queue.broker_name)
        try:
            await self._wait(member.begun)
            while not self.is_ending:
                try:
                    await self._session()
                except RocketAppError as error:
                    member.blocked.because(self.queue, f"its offset cannot be read: {error}", kind="offset")
                    await self._wait(timeout=TRY_AGAIN)
                except Exception as error:
                    # A bug here must not end the consumption of this queue without a word.
                    member.failed(f"queue {self.queue}", error)
                    await self._wait(timeout=TRY_AGAIN)
        finally:
            member.blocked.forget(self.queue)
            member.client.routes.release_broker(self.queue.broker_name)

    async def _wait(self, *others: asyncio.Future[Any], timeout: float | None = None) -> None:
        """Until one of them is done, the time is over, or the queue is to be given back."""
        await asyncio.wait([*others, self._ended], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    async def _session(self) -> None:
        """Consume it for one session. Raises RocketAppError when it cannot begin."""

    def end(self) -> None:
        """Give it back; what was started may finish."""
        if not self._ended.done():
            self._ended.set_result(None)

    def cut(self, is_cut: bool = True) -> None:
        """Wait for no handler any more: what still runs is lost. `is_cut`: that is no clean end."""
        if not self._cut.done():
            self._cut.set_result(is_cut)

    async def _drained(self, timeout: float | None = None) -> bool:
        """Wait for what was started; whether it has ended, without a `timeout` also by cancellation when it is cut."""
        drained = self._member.tasks.start(self.delivery.drained(), f"drain {self.queue}")
        await asyncio.wait([drained, self._cut], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if drained.done():
            return True
        drained.cancel()
        if timeout is not None:
            return False
        self.is_clean = self.is_clean and not self._cut.result()
        abandoned: bool = await self.delivery.abandon()
        return abandoned

    def limits_changed(self) -> None:
        """Other limits apply to what it pulls."""

    # A queue that is popped has no offset of its own, and nothing of it is handed over: it does nothing of these.

    def handover(self) -> None:
        """Give it to another living member, which does not wait for long."""

    def owner_changed(self) -> None:
        """While it is being given back, another member has got it."""

    def pull_anew(self) -> None:
        """What its pulls ask for has changed."""

    def move(self, offset: int) -> None:
        """An operator has the group go on at this offset."""


class Limits:
    """By topic the settings in force, of pulls, pops and handlers: those of the start, with what was changed since."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.config: ConsumerConfig = config
        """Those of the start."""
        self._by_topic: dict[str, ConsumerConfig] = {}
        self.changed: dict[str, dict[str, float]] = {}
        """By topic what is not as it was declared or set at the start."""

    def __repr__(self) -> str:
        return f"<Limits: {self.changed or 'as they were set'}>"

    def of(self, topic: str) -> ConsumerConfig:
        """The settings of this topic now."""
        return self._by_topic.get(topic, self.config)

    def change(self, topic: str, values: Mapping[str, float | None]) -> None:
        """From now on these values apply to this topic; None: what was declared or set at the start."""
        changed: dict[str, float | None] = {**self.changed.get(topic, {}), **values}
        left = {name: value for name, value in changed.items() if value is not None}
        settings: dict[str, Any] = {name: value for name, value in left.items() if hasattr(self.config, name)}
        settings.pop("concurrency", None)  # of a handler: the setting is what handlers inherit at the start
        self._by_topic[topic] = replace(self.config, **settings)
        if left:
            self.changed[topic] = left
        else:
            self.changed.pop(topic, None)


class GroupStats:
    """The counters of a group: those of each handler, and of each topic."""

    def __init__(self, handlers: Iterable[Handler]) -> None:
        self.handlers: tuple[Handler, ...] = tuple(handlers)
        """Each carries its own counters."""
        self.others: defaultdict[str, HandlerStats] = defaultdict(HandlerStats)
        """By topic what became here of messages that only other members handle."""
        self.unmatched: Counter[str] = Counter()
        """By topic the messages that were finished because no handler subscribes to their tag."""
        self.forwarded: int = 0
        """Messages that other members have done."""
        self.pulls: int = 0
        """Pulls that brokers have answered."""
        self.pulled: Counter[str] = Counter()
        """By topic the messages of their answers."""

    def __repr__(self) -> str:
        return f"<GroupStats of {len(self.handlers)} handlers: {self.total()}>"

    def each(self) -> Iterator[tuple[str, str, HandlerStats]]:
        """By handler its name, topic and counters now. What another member has handled is counted there."""
        for handler in self.handlers:
            yield handler.name, handler.subscription.topic, replace(handler.stats)
        for topic, stats in self.others.items():
            if stats.retried or stats.dead_lettered:
                yield OTHERS, topic, replace(stats, handled=0)

    def total(self) -> HandlerStats:
        """The sum of all counters."""
        return sum((stats for *_, stats in self.each()), HandlerStats(unmatched=self.unmatched.total()))
