"""A plugin's way of consuming one topic: hands messages to its intakes, and keeps them while the topic is paused."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.member import GroupStats
from rocketapp.consumer.pausing import Pausing
from rocketapp.consumer.pull.puller import Decode
from rocketapp.consumer.stalls import OF_INTAKE, StallReasons
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import Keep, NewCompletion, NewQueue, Pulled, QueueLock
from rocketapp.consumer.ways.intake import IntakeWay
from rocketapp.errors import PluginError, RocketAppError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.queue_start import Begin, QueueStart
from rocketapp.model.subscription import Subscription
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.handover import RUN_ON
from rocketapp.state.pauses import Take
from rocketapp.state.piece_queue import PieceQueue
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.tag_table import TagTable
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.stored_records import StoredRecords, stored_records


@dataclass(frozen=True, slots=True)
class PluggedIn:
    """The way of one topic, and the plugin that brought it."""

    plugin: str
    way: IntakeWay


class PluggedWay(Pulled):
    """The way of one topic; its retries are concurrent."""

    def __init__(self, topics: Sequence[ConsumedTopic], context: WayContext) -> None:
        """`topics`: one, which has one handler."""
        (topic,) = topics
        (handler,) = topic.handlers
        self.handler: Handler = handler
        self.plugged_in: PluggedIn = topic.plugged_in
        self.observe: Observe = context.member.observe
        self.stats: GroupStats = context.member.stats
        self.table: TagTable[Handler] = TagTable([(handler, handler.subscription.tags)])
        """Brokers compare hashes of tags alone."""
        self.new_completion: NewCompletion = context.new_completion
        self.stall_reasons: StallReasons = context.member.stalls
        self.pausing: Pausing = context.member.pausing
        self.needs_lock: bool = self.plugged_in.way.locked
        self.run_on: float | None = None if self.needs_lock else RUN_ON
        self.takes_records: bool = self.plugged_in.way.records
        self.new_queue: NewQueue = PieceQueue if self.takes_records else ProcessQueue
        self.decode: Decode = self._pieces if self.takes_records else decode_records

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """An intake that is done in its own time has its own limits, and then the span does not count."""
        way = self.plugged_in.way
        return QueueLimits(
            config.queue_max_messages if way.max_messages is None else way.max_messages,
            config.queue_max_bytes if way.max_bytes is None else way.max_bytes,
            config.queue_max_span if way.max_messages is None else None,
            way.is_full,
            config.topic_max_messages if way.max_messages is None else 0,
            config.topic_max_bytes if way.max_bytes is None else 0,
        )

    def split(self, queue: MessageQueue, messages: Sequence[Message]) -> tuple[list[Message], list[Message]]:
        """Those that the subscription wants, and the others, which are counted."""
        wanted: list[Message] = []
        others: list[Message] = []
        for handler, share in self.table.split(messages):
            (others if handler is None else wanted).extend(share)
        if others:
            self.stats.count_unmatched(queue.topic, len(others))
        return wanted, others

    def _pieces(self, data: bytes, queue: MessageQueue, *, max_inflated_bytes: int) -> list[StoredRecords]:
        """What an answer holds, without messages that the subscription does not want."""
        if not self.handler.subscription.tags:
            found = stored_records(data, queue, max_inflated_bytes=max_inflated_bytes)
            return [] if found is None else [found]
        messages = decode_records(data, queue, max_inflated_bytes=max_inflated_bytes)
        wanted, _ = self.split(queue, messages)
        return [StoredRecords.of(wanted, queue)] if wanted else []

    @property
    def own_start(self) -> Begin | None:
        """Where its sessions begin, when the plugin keeps the offsets."""
        return None if self.plugged_in.way.begin is None else self._begin

    async def _begin(self, start: QueueStart) -> int | None:
        assert self.plugged_in.way.begin is not None
        try:
            return await self.plugged_in.way.begin(start)
        except RocketAppError:
            raise
        except Exception as error:
            raise PluginError(self.plugged_in.plugin, f"{type(error).__name__}: {error}") from error

    def open(self, process_queue: ProcessQueue[Any], lock: QueueLock | None, _flow: object = None) -> PluggedDelivery:
        return PluggedDelivery(process_queue, self)

    def in_hand(self) -> list[tuple[Handler, Any]]:
        """The engine does not know what an intake works on."""
        return []

    def pace(self, handler: Handler, concurrency: int, rate: float | None, batch: int | None) -> None:
        """A plugin consumes at its own pace."""

    async def stop(self) -> None:
        """Every delivery has been ended before."""

    def halt(self) -> None:
        """A plugin sees to its own tasks."""

    def failed(self, queue: MessageQueue, error: BaseException) -> None:
        text = f"plugin {self.plugged_in.plugin}: {type(error).__name__}: {error}"
        self.observe(LoopFailed(f"consuming {queue}", text))


class PluggedDelivery:
    """One session of one queue (consumer.ways.delivery.Delivery)."""

    def __init__(self, process_queue: ProcessQueue[Any], way: PluggedWay) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._process_queue, self._way = process_queue, way
        self._kept: deque[Any] = deque()
        """Messages, or pieces with several, that wait for the end of a hold."""
        self._stopped: list[Message] = []
        """Messages that were taken and failed with a Stop: they are taken again when their topic is resumed."""
        self._is_held = self._is_ended = False
        self._take: Take | None = None
        """During a hold, whether one message may be tried."""
        self._intake: Any = None
        """An Intake, or a RecordsIntake: it takes what the way decodes."""
        try:
            self._intake = way.plugged_in.way.new_intake(
                _Session(process_queue, way, self._broken, self._stopped.append)
            )
        except Exception as error:
            self._broken(error)
        way.pausing.watch(process_queue.message_queue.topic, self._look_at_pauses)
        self._look_at_pauses()

    def deliver(self, messages: Sequence[Any]) -> None:
        if not self._way.takes_records:
            messages, others = self._way.split(self._process_queue.message_queue, messages)
            self._process_queue.finish_all(others)
        self._kept.extend(messages)
        self._give()

    def _look_at_pauses(self) -> None:
        """A queue of this mode has messages of one topic alone."""
        pauses, topic = self._way.pausing.pauses, self._process_queue.message_queue.topic
        self._is_held, self._take = pauses.is_paused(topic), pauses.leave(topic)
        if not self._is_held:
            self._kept.extendleft(reversed(self._stopped))
            self._stopped.clear()
        self._give()

    def end(self, *, start_no_more: bool = False) -> None:
        self._is_ended = True
        if self._kept:
            self._process_queue.withdraw(self._kept[0].offset)
            self._kept.clear()

    async def drained(self) -> None:
        if self._intake is None or self.over.done():
            return
        try:
            await self._intake.drain()
        except Exception as error:
            # What it did not acknowledge is another member's, or comes again.
            self._way.failed(self._process_queue.message_queue, error)

    async def abandon(self) -> bool:
        """False: whether anything of the intake runs on is not known."""
        return False

    def discard(self) -> None:
        self._process_queue.close()
        self.end()
        self._way.pausing.unwatch(self._process_queue.message_queue.topic, self._look_at_pauses)
        if self._intake is not None:
            try:
                self._intake.discard()
            except Exception as error:
                self._way.failed(self._process_queue.message_queue, error)
        self._way.stall_reasons.forget(self._process_queue.message_queue, place=OF_INTAKE)

    def _give(self) -> None:
        """Hand over what is kept; during a hold one message or piece at most."""
        if self._is_ended or not self._kept or self._intake is None or self.over.done():
            return
        if not self._is_held:
            messages = list(self._kept)
            self._kept.clear()
        elif self._take is not None and self._take(self._way.handler.name):
            messages = [self._kept.popleft()]
        else:
            return
        try:
            self._intake.take(messages)
        except Exception as error:
            self._broken(error)

    def _broken(self, error: BaseException) -> None:
        if not self.over.done():
            self._way.failed(self._process_queue.message_queue, error)
            self.over.set_exception(error if isinstance(error, Exception) else RuntimeError(str(error)))
            # The owner looks at it when it waits the next time; reading it here marks it as seen.
            self.over.exception()


class _Session:
    """What the intake is given (consumer.ways.intake.QueueSession)."""

    def __init__(
        self, process_queue: ProcessQueue[Any], way: PluggedWay, broken: Callable[[BaseException], None], keep: Keep
    ) -> None:
        self._process_queue, self._way, self.broken = process_queue, way, broken
        self._completion = way.new_completion(process_queue, way.handler, keep)

    @property
    def subscription(self) -> Subscription:
        return self._way.handler.subscription

    @property
    def queue(self) -> MessageQueue:
        return self._process_queue.message_queue

    @property
    def call(self) -> Callable[[Any], Any]:
        return self._way.handler.call

    @property
    def position(self) -> int:
        return self._process_queue.commit_offset

    def done(self, messages: Sequence[Any]) -> None:
        if self._process_queue.closed:
            return
        if self._way.takes_records:
            self._way.handler.stats.handled += sum(map(len, messages))
            self._process_queue.finish_all(messages)
        else:
            self._completion.done_all(messages)

    def still(self, reason: str) -> None:
        if not self._process_queue.closed:
            self._way.stall_reasons.blocked(self.queue, reason, kind="intake", place=OF_INTAKE)

    def moving(self) -> None:
        if not self._process_queue.closed:
            self._way.stall_reasons.moving(self.queue, place=OF_INTAKE)

    def failed(self, message: Message, error: BaseException) -> None:
        self._completion.judge(message, error, True)
