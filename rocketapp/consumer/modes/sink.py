"""Sinks: messages are done when a writer says so, for example when a table has stored a hundred of them.

The engine assigns queues, pulls, parks what is paused, commits offsets and gives queues back, as in every consume mode.
For each session of each queue a sink makes a writer, which takes what was pulled and acknowledges it, at once or much
later.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.member import Member
from rocketapp.consumer.modes.by_offset import SentBack
from rocketapp.consumer.modes.delivery import Mode, ModeContext, NewQueue
from rocketapp.consumer.pull.puller import Decode
from rocketapp.errors import PluginError, RocketAppError
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import Begin, MessageQueue, QueueStart
from rocketapp.model.subscription import Subscription
from rocketapp.state.flow_control import IsFull, QueueLimits
from rocketapp.state.handover import RUN_ON
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.records_queue import RecordsQueue
from rocketapp.state.tag_table import TagTable
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.stored_records import StoredRecords, stored_records

_SOURCE = "writer"
"""Source of the reasons that writers give."""
Taken_contra = TypeVar("Taken_contra", Message, StoredRecords, contravariant=True)


class QueueWriter(Protocol[Taken_contra]):
    """Takes one queue for one session: from its assignment until it is given back. Called on the event loop.

    It takes messages, or with `Sink(records=True)` records as brokers store them, not decoded.
    """

    def take(self, messages: Sequence[Taken_contra]) -> None:
        """What was pulled of the queue, in offset order. Must not block: start what takes time.

        What it raises ends the session: after a second the queue is read again from what was acknowledged.
        """
        ...

    async def drain(self) -> None:
        """The queue is given back: finish what was taken, acknowledge it, and return. It is the time to flush.

        Nothing more is taken. What is not acknowledged goes to the next owner. May be cancelled when time is over.
        """
        ...

    def discard(self) -> None:
        """The session is over, drained or void: start nothing more. Acknowledging has no effect now."""
        ...


class QueueSession:
    """What a writer is given: its queue, and how it acknowledges. For the event loop only."""

    def __init__(self, process_queue: ProcessQueue[Any], mode: SinkMode, delivery: WriterDelivery) -> None:
        self._process_queue, self._member, self._context = process_queue, mode.context.member, mode.context
        self._handler, self._delivery = mode.handler, delivery
        self.subscription: Subscription = mode.handler.subscription
        """What was declared for the topic: its handler, tags and options."""
        self.queue: MessageQueue = process_queue.message_queue
        """The queue, or the one of a topic of another name that it is read from."""
        self.call: Callable[[Any], Any] = mode.handler.call
        """The handler behind its wrappers: a writer may call it, or do without. One of a sync handler blocks."""

    def __repr__(self) -> str:
        return f"<QueueSession {self._process_queue}>"

    @property
    def position(self) -> int:
        """Everything below is done, or did not match the subscription: what is committed to the broker."""
        return self._process_queue.commit_offset

    async def record_at(self, offset: int) -> tuple[int, int, str] | None:
        """What the broker has there, whatever the filter says: see `QueueStart.record_at`."""
        return await self._member.brokers.record_at(self.queue, offset)

    def done(self, messages: Sequence[Any]) -> None:
        """These are done, as they were taken, in any order: the committed offset passes them when all below are."""
        if not self._process_queue.closed:
            before = len(self._process_queue)
            self._process_queue.finish_all(messages)
            self._handler.stats.handled += before - len(self._process_queue)

    def failed(self, message: Message, error: BaseException) -> None:
        """This one failed: `error` counts as if the handler had raised it: its Policy, breaker and retries hold.

        An outcome means what it says: a Skip is done; a Pause pauses the topic, and the message is taken again when
        that is resumed. What is retried goes to the handler, concurrently. Not for a writer that takes records.
        """
        redelivery, stopping = self._context.redelivery, self._context.stopping
        acks = SentBack(self._process_queue, self._handler, redelivery, self._delivery.park, stopping)
        acks.ended(message, error, True)

    def broken(self, error: BaseException) -> None:
        """Nothing can be done now: end the session. After a second the queue is read again from what is done."""
        self._delivery.fail(error)

    def blocked(self, reason: str) -> None:
        """Why the queue makes no progress, for logs and snapshots; it holds until `moving`, or the session's end."""
        if not self._process_queue.closed:
            self._member.blocked.because(self.queue, reason, kind="writer", source=_SOURCE)

    def moving(self) -> None:
        """The reason of `blocked` is gone. Costs little when there was none."""
        if not self._process_queue.closed:
            self._member.blocked.moving(self.queue, source=_SOURCE)


NewWriter = Callable[[QueueSession], QueueWriter[Message]]
"""Makes the writer of one session of one queue, on the event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sink:
    """How a plugin consumes one topic."""

    new_writer: NewWriter | Callable[[QueueSession], QueueWriter[StoredRecords]]
    """Makes the writer of one session of one queue, on the event loop."""
    records: bool = False
    """Its writers take records as brokers store them, of which they make messages themselves, or columns."""
    locked: bool = False
    """Queues are consumed under the lock of their broker, by one member at a time; the next one waits for `drain`."""
    begin: Begin | None = None
    """For offsets that are kept in the table that holds the rows. Asked under the lock, if there is one."""
    max_messages: int | None = None
    """Messages of one queue that are not acknowledged and stop its pulls; None: `consumer.queue_max_messages`."""
    max_bytes: int | None = None
    """The same for bytes; None: `consumer.queue_max_bytes`. `consumer.cache_max_bytes` bounds all queues together."""
    until_now: bool = False
    """Only what is there as a queue begins is wanted: `rocketapp run --exit-when-idle` does not wait for more.

    Its writers take no more then: what they take in vain would be work that is left.
    """
    is_full: IsFull | None = None
    """For what all queues of the plugin hold together; asked before each pull of a queue that holds something."""
    plugin: str = ""
    """The plugin that brought it; the app fills that in."""


class SinkMode(Mode):
    """Consumes one topic by a sink. Retries go to the handler, concurrently."""

    def __init__(self, topic: ConsumedTopic, context: ModeContext) -> None:
        """`topic` has one handler."""
        super().__init__(context)
        self.handler: Handler = topic.handlers[0]
        self.sink: Sink = topic.sink
        self.needs_lock: bool = self.sink.locked
        self.run_on: float | None = None if self.needs_lock else RUN_ON
        self._decode_wanted = partial(decode_wanted, self.handler, context.member)
        self.decode: Decode = self._records if self.sink.records else self._decode_wanted
        if self.sink.records:
            self.new_queue: NewQueue = RecordsQueue
        if self.sink.begin is not None:
            self.own_start: Begin | None = self._begin

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """A sink may set its own limits; then the span does not count."""
        sink = self.sink
        return QueueLimits(
            config.queue_max_messages if sink.max_messages is None else sink.max_messages,
            config.queue_max_bytes if sink.max_bytes is None else sink.max_bytes,
            config.queue_max_span if sink.max_messages is None else None,
            sink.is_full,
            config.topic_max_messages if sink.max_messages is None else 0,
            config.topic_max_bytes if sink.max_bytes is None else 0,
        )

    def _records(self, data: bytes, queue: MessageQueue, *, max_inflated_bytes: int) -> list[StoredRecords]:
        """The record blocks of an answer, without messages that the subscription does not match."""
        if not self.handler.subscription.tags:
            found = stored_records(data, queue, max_inflated_bytes=max_inflated_bytes)
            return [] if found is None else [found]
        wanted = self._decode_wanted(data, queue, max_inflated_bytes=max_inflated_bytes)
        return [StoredRecords.of(wanted, queue)] if wanted else []

    async def _begin(self, start: QueueStart) -> int | None:
        """Where a session begins, for a plugin that stores the offsets itself."""
        assert self.sink.begin is not None
        if self.sink.until_now:
            # A queue that has lost its tail, or took the place of another, may end below where that one did.
            ends, end = self.context.member.brokers.ends, start.max_offset
            ends[start.queue] = min(end, ends.get(start.queue, end))
        try:
            return await self.sink.begin(start)
        except RocketAppError:
            raise
        except Exception as error:
            raise PluginError(self.sink.plugin, f"{type(error).__name__}: {error}") from error

    def open(self, process_queue: ProcessQueue[Any]) -> WriterDelivery:
        """A delivery for a new session."""
        return WriterDelivery(process_queue, self)


def decode_wanted(
    handler: Handler, member: Member, data: bytes, queue: MessageQueue, *, max_inflated_bytes: int
) -> Sequence[Message]:
    """The messages of an answer that the subscription matches. Others are counted: brokers compare hashes only."""
    messages = decode_records(data, queue, max_inflated_bytes=max_inflated_bytes)
    tags = handler.subscription.tags
    shares = TagTable([(True, tags)]).split(messages) if tags else [(True, messages)]
    wanted = next((share for is_wanted, share in shares if is_wanted), ())
    if others := len(messages) - len(wanted):
        member.stats.unmatched[queue.topic] += others
    return wanted


class WriterDelivery:
    """Gives pulled messages to a writer, except during a pause."""

    def __init__(self, process_queue: ProcessQueue[Any], mode: SinkMode) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue: MessageQueue = process_queue.message_queue
        self._process_queue, self._handler, self._member = process_queue, mode.handler, mode.context.member
        self._mode = mode
        self._waiting: deque[Any] = deque()
        """Messages that the writer has not taken; or records, each of several messages."""
        self._parked: list[Message] = []
        """Messages that were taken and are parked: they are taken again after a while, or when their topic goes on."""
        self._is_ended = False
        self._topic = mode.handler.subscription.topic
        self._member.pauses.watch(self._topic, self._pauses_changed)
        self._writer: QueueWriter[Any] | None = None
        try:
            self._writer = mode.sink.new_writer(QueueSession(process_queue, mode, self))
        except Exception as error:
            self.fail(error)

    def __repr__(self) -> str:
        return f"<WriterDelivery {self._process_queue}>"

    def deliver(self, messages: Sequence[Any]) -> None:
        """What was just put into the process queue, in offset order."""
        self._waiting.extend(messages)
        self._look()

    def end(self, *, start_no_more: bool = False) -> None:
        """Withdraw messages that the writer has not taken."""
        self._is_ended = True
        if self._waiting:
            self._process_queue.withdraw(self._waiting[0].offset)
            self._waiting.clear()

    async def drained(self) -> None:
        """Returns when the writer has finished what it has taken, or has failed."""
        if self._writer is None or self.over.done():
            return
        try:
            await self._writer.drain()
        except Exception as error:
            # What it did not acknowledge is another member's, or comes again.
            self._tell(error)

    async def abandon(self) -> bool:
        """Always False: whether anything of the writer goes on is not known."""
        return False

    def discard(self) -> None:
        """The session is void: acknowledge nothing of it any more."""
        self._process_queue.close()
        self.end()
        self._member.pauses.unwatch(self._topic, self._pauses_changed)
        if self._writer is not None:
            try:
                self._writer.discard()
            except Exception as error:
                self._tell(error)
        self._member.blocked.forget(self.queue, source=_SOURCE)

    def why_it_waits(self, stood_still: float) -> str:
        """Nothing: a writer says itself what it waits for, and what it has taken waits for no call."""
        return ""

    def _pauses_changed(self) -> None:
        if not self._member.pauses.is_paused(self._topic):
            self._waiting.extendleft(reversed(self._parked))
            self._parked.clear()
        self._look()

    def _look(self) -> None:
        """Give messages to the writer: all, or during a pause at most one as the probe."""
        if self._is_ended or not self._waiting or self._writer is None or self.over.done():
            return
        if not self._member.pauses.is_paused(self._topic):
            messages = list(self._waiting)
            self._waiting.clear()
        elif self._member.pauses.may_probe(self._topic, self._handler.name):
            messages = [self._waiting.popleft()]
        else:
            return
        try:
            self._writer.take(messages)
        except Exception as error:
            self.fail(error)

    def _tell(self, error: BaseException) -> None:
        text = f"plugin {self._mode.sink.plugin}: {type(error).__name__}: {error}"
        self._member.observe(LoopFailed(f"consuming {self.queue}", text))

    def park(self, messages: Sequence[Message], after: float) -> None:
        """Park messages that the writer has taken and that failed."""
        self._parked += messages
        if after:
            asyncio.get_running_loop().call_later(after, self._pauses_changed)

    def fail(self, error: BaseException) -> None:
        """The writer cannot go on: end the session."""
        if not self.over.done():
            self._tell(error)
            self.over.set_exception(error if isinstance(error, Exception) else RuntimeError(str(error)))
            # The owner looks at it when it waits the next time; reading it here marks it as seen.
            self.over.exception()
