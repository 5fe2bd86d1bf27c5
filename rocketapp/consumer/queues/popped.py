"""One topic of one broker, popped: from the moment it is acquired until it has been given back.

Other members pop the same queues at the same time; the broker hands each message to one of them. So there is nothing
to hand over, and no offset to commit: what this member has in flight is its own until it is acknowledged, or until its
invisible time is over. Its broker keeps its offsets, and moves them itself. What its requests ask for changes with the
next one: discarding the one under way could hide messages from everyone.

The next request is under way before the present answer is handed over, as long as few messages are in flight. Handlers
run as in the concurrent mode, and each message is acknowledged by itself (`pop.acks`).

Brokers also share out the queues of a popped topic among the members.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple

from rocketapp.client.calls import pop
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.brokers import LOST_PATIENCE
from rocketapp.consumer.handler import messages_of
from rocketapp.consumer.member import Member, Owned
from rocketapp.consumer.modes.by_message import MessageDelivery, MessageMode
from rocketapp.consumer.pop.acks import REQUEST_TIMEOUT, PopAcks
from rocketapp.consumer.pull.flow import FlowControl, QueueFlow
from rocketapp.consumer.queues.start import Starts
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import Pair, Taker
from rocketapp.errors import BrokerError, ProtocolError, RocketAppError, TransportError
from rocketapp.model.event import Assigned, Released
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import DeadLetter
from rocketapp.model.pulled import Handle
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.pop_queue import RENEW_AT, HandOut, PopQueue, hidden_since
from rocketapp.state.redelivery import CERTAIN, is_spent
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.assignment import POP, AssignedQueue, AssignmentQuestion
from rocketapp.wire.requests.pop import FROM_FIRST, OF_TOPIC, PopRequest, PopResponse, handle_in

_LAST_ACKS = 2 * REQUEST_TIMEOUT
"""Seconds that the last acknowledgements may take."""
_ASSIGNED_TIMEOUT = 3.0
"""Seconds that a broker may take to share out a topic (Java: the same)."""
_ANSWER_TIME = 1.0
"""Seconds after which a request that was not answered is held by a broker that has nothing."""
_SHORT_POLL = 1.0
"""Seconds that a broker may keep a request while messages may come again: it wakes none for them."""
_ANSWER_LATE = 10.0
"""Seconds that an answer may be late (Java: the same)."""
_KNOWS_SUSPEND = 513
"""Version of a broker (V5_5_0 in Java's MQVersion) from which a message that is given back has no attempt more."""


class PendingPop(NamedTuple):
    """A pop request under way."""

    answer: asyncio.Future[Command]
    connection: Connection
    sent_at: float
    poll: float
    """Seconds that the broker may keep it while there is nothing."""
    invisible: float
    """Seconds for which its messages are hidden from other members."""
    wanted: SubscriptionData
    """What it asks for."""


class PopAssignment(Owned):
    """Consumes one popped topic of one broker, in one session."""

    def __init__(self, queue: MessageQueue, mode: MessageMode, *, starts: Starts, flow_control: FlowControl) -> None:
        member = mode.context.member
        super().__init__(queue, member)
        self._starts = starts
        self._acks = PopAcks(queue, member, mode.context.redelivery)
        """Knows what is in flight, and whether messages that we have failed on come again."""
        self.popped: PopQueue[Message] | None = self._acks.queue
        self.delivery: PopDelivery = PopDelivery(self._acks, mode)
        self._flow = QueueFlow(flow_control, member, self._acks.queue, self._limits())
        self._coming: PendingPop | None = None
        """The request under way."""

    def __repr__(self) -> str:
        return f"<PopAssignment {self._acks.queue}>"

    @property
    def asked(self) -> SubscriptionData | None:
        return None if self._coming is None else self._coming.wanted

    @property
    def _config(self) -> ConsumerConfig:
        """The present settings of the topic."""
        return self._member.limits.of(self.queue.topic)

    def _limits(self) -> QueueLimits:
        config = self._config
        told = f"limit pop_max_messages {config.pop_max_messages}"
        return QueueLimits(config.pop_max_messages, config.queue_max_bytes, None, limit_told=told)

    def limits_changed(self) -> None:
        self._flow.change(self._limits())

    async def run(self) -> None:
        """Consume until it has been given back."""
        try:
            await super().run()
        finally:
            self._flow.close()

    async def _session(self) -> None:
        """One session. Begins when the group has offsets in each queue where a broker would not begin by `start=`."""
        member, queue, start = self._member, self._acks.queue, self._member.tasks.start
        route = member.client.routes.get(self.queue.topic)
        for there in () if route is None else route.readable_queues(self.queue.topic):
            if there.broker_name == self.queue.broker_name and not self.is_ending:
                await self._starts.fix(there)
        if self.is_ending:
            return
        self.process_queue: PopQueue[Message] | None = queue
        member.observe(Assigned(member.name, self.queue, 0, queue.epoch))
        popping = start(
            member.repeat(self._pop, f"pop {self.queue}", self._config.pull_retry_delay), f"pop {self.queue}"
        )
        hiding = start(self._acks.keep_hidden(), f"keep hidden what is in flight of {self.queue}")
        acknowledging = start(self._acks.run(), f"acknowledge {self.queue}")
        try:
            await self._ended
            popping.cancel()
            await self._give_back(acknowledging)
        except asyncio.CancelledError:
            # Not by us: the loop is being closed, and a handler must not keep it.
            self.delivery.discard()
            raise
        finally:
            for each in (popping, hiding, acknowledging):
                each.cancel()
            self.process_queue = None
        member.observe(Released(member.name, self.queue, "released"))

    async def _give_back(self, acknowledging: asyncio.Task[None]) -> None:
        """Finish and acknowledge what was started; make the rest visible to others."""
        self._acks.end()
        self.delivery.end()
        late = self._give_back_late(self._coming)
        self._member.tasks.start(late, f"give back the late answer of {self.queue}")
        await self._drained()
        acknowledging.cancel()
        await asyncio.wait([acknowledging])
        self.is_clean: bool = await self._acks.ack_rest(_LAST_ACKS) and self.is_clean
        self.delivery.discard()

    async def _give_back_late(self, coming: PendingPop | None) -> None:
        """Give back what the request under way brings, perhaps long after the session.

        Until the broker has answered, its address is kept, even when no route names it.
        """
        routes, broker_name = self._member.client.routes, self.queue.broker_name
        routes.hold_broker(broker_name)
        try:
            if coming is not None:
                await asyncio.wait([coming.answer])
                with contextlib.suppress(RocketAppError, asyncio.CancelledError):
                    self._acks.give_back(self._took(coming))
            await self._acks.settled()
        finally:
            if coming is not None:
                coming.answer.cancel()
            routes.release_broker(broker_name)

    # What it asks for, and what comes.

    async def _pop(self) -> None:
        try:
            await self._pop_on()
        except RocketAppError as error:
            patience = LOST_PATIENCE if isinstance(error, TransportError) else 0.0
            self._flow.stops(f"pop failed: {error}", "pop failed", patience)
            self._acks.queue.is_empty_since = None
            await asyncio.sleep(self._member.brokers.wait_after(error, self.queue.topic))

    async def _pop_on(self) -> None:
        if self._coming is None:
            if self._flow.is_paused:  # nobody asks
                self._acks.queue.is_empty_since = None
            await self._flow.passed()
            self._coming = await self._start(self._poll())
        coming = self._coming
        if not (await asyncio.wait([coming.answer], timeout=_ANSWER_TIME))[0]:
            # Neither answered nor refused: the broker holds the request until there is a message.
            self._is_empty()
            await asyncio.wait([coming.answer])
        self._coming = None
        self._flow.release()
        messages = self._took(coming)
        self._member.stats.pulls += 1
        self._flow.moves()
        if not messages:
            self._is_empty()
            return
        self._member.stats.pulled[self.queue.topic] += len(messages)
        # What was just taken counts: the next request is sent before handlers have their turn.
        try:
            if self._flow.may_pull():
                self._coming = await self._start(self._poll())
        finally:
            self._hand_on(coming, messages)

    def _hand_on(self, coming: PendingPop, messages: Sequence[Message]) -> None:
        if self._flow.is_paused and coming.answer.result().version >= _KNOWS_SUSPEND:
            # Other members may handle them meanwhile. What counts attempts would make dead letters of them in the end.
            self._acks.give_back(messages)
        else:
            self.delivery.deliver(messages)

    def _took(self, coming: PendingPop) -> Sequence[Message]:
        """The messages of an answer, which are in flight from now on. Raises RocketAppError."""
        result = pop.read(coming.answer.result(), coming.connection)
        if not result.body:
            return ()
        queue = self._acks.queue
        queue.rest, queue.is_empty_since = result.answer.rest, None
        messages, found = hand_outs(
            result.answer,
            result.body,
            self.queue,
            at=hidden_since(coming.sent_at, coming.poll, self._loop.time(), coming.invisible),
            max_inflated_bytes=self._member.max_inflated_bytes,
        )
        for hand_out, share in found:
            queue.hand_out(hand_out, share)
        for message in messages if queue.coming else ():
            queue.came(message.message_id, self._loop.time())
        self._flow.taken(len(result.body))
        return messages

    def _is_empty(self) -> None:
        queue = self._acks.queue
        queue.rest = 0
        if queue.is_empty_since is None:
            queue.is_empty_since = self._loop.time()
        self._flow.moves()

    def _poll(self) -> float:
        """Seconds that the broker may hold a request: a late answer has half of its invisible time left."""
        most = min(self._config.long_poll, RENEW_AT * self._config.pop_invisible_time)
        # Messages come again that this member has failed on, or may: some are in flight.
        return min(most, _SHORT_POLL) if self._acks.queue or self._acks.queue.coming else most

    async def _start(self, poll: float) -> PendingPop:
        """Send a pop. `poll`: seconds that the broker may hold it while there is no message."""
        member = self._member
        connection = await member.brokers.connection(self.queue.broker_name)
        config = self._config  # only now: it may have changed meanwhile
        wanted = member.brokers.carried.get(self.queue.topic) or member.subscriptions[self.queue.topic]
        request = PopRequest(
            group=member.name,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            max_messages=config.pop_batch_size,
            invisible_ms=round(config.pop_invisible_time * 1000),
            poll_ms=round(poll * 1000),
            # Start positions are committed before: only a queue that has appeared since is read from its beginning.
            init_mode=FROM_FIRST,
            expression=wanted.expression,
            expression_type=wanted.expression_type,
        )
        answer = pop.start(connection, request, poll + _ANSWER_LATE)
        return PendingPop(answer, connection, self._loop.time(), poll, config.pop_invisible_time, wanted)


Key = tuple[int, int, int, int]
"""Kind, queue id, first offset, and when it was handed out."""


def hand_outs(
    answer: PopResponse, body: bytes, queue: MessageQueue, *, at: float, max_inflated_bytes: int
) -> tuple[list[Message], list[tuple[HandOut, list[Message]]]]:
    """The messages of an answer in order, and grouped by what was popped together. Raises ProtocolError.

    `queue` names topic and broker; each message names its own queue. `at`: loop time since when they are invisible.
    """
    messages = decode_records(body, queue, max_inflated_bytes=max_inflated_bytes)
    retries = [key for key in answer.starts if key[0] != OF_TOPIC]
    found: dict[Key, tuple[HandOut, list[Message]]] = {}
    queues: dict[int, MessageQueue] = {}
    for message in messages:
        number = message.queue_id
        message.queue = queues.get(number) or queues.setdefault(number, queue._replace(queue_id=number))
        own = handle_in(message.raw_properties) if retries else None
        if own is not None:
            message.offset = own.offset
            key = own.kind, own.queue_id, own.start, own.popped_ms
        else:
            kind = _kind_of(message, answer, retries) if retries else OF_TOPIC
            if (kind, number) not in answer.starts:
                raise ProtocolError(f"{queue.broker_name} handed out {message!r} without saying where it lies")
            key = kind, number, answer.starts[kind, number], answer.popped_ms
        share = found.get(key)
        if share is None:
            handle = own or Handle(
                key[2], key[3], answer.invisible_ms, answer.revive_queue, key[0], queue.broker_name, number, key[2]
            )
            share = found[key] = HandOut(handle, at), []
        share[1].append(message)
    return messages, list(found.values())


def _kind_of(message: Message, answer: PopResponse, retries: Sequence[tuple[int, int]]) -> int:
    """For brokers that do not say in the message whether it is a retry: attempts, or its place, tell."""
    of_topic = answer.offsets.get((OF_TOPIC, message.queue_id), ())
    if message.reconsume_times or message.offset not in of_topic:
        for kind, queue_id in retries:
            if queue_id == message.queue_id and message.offset in answer.offsets.get((kind, queue_id), ()):
                return kind
    return OF_TOPIC


class PopDelivery(MessageDelivery):
    """Brings popped messages of one topic and broker to workers."""

    def __init__(self, acks: PopAcks, mode: MessageMode) -> None:
        super().__init__(acks.queue, mode, acks)
        self.check: Callable[[Any], Any] | None = self._hidden
        self._acks = acks

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages were just popped; after the end they are given back."""
        if self._ended.done():
            self._acks.give_back(messages)
        else:
            super().deliver(messages)

    def _hidden(self, item: Any) -> Any:
        """The part of an item that is still invisible to others. The rest is given back. Thread-safe."""
        is_over, now = self._acks.queue.is_over, self._loop.time()
        late = [message for message in messages_of(item) if is_over(message, now)]
        if not late:
            return item
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._acks.give_back, late)
        return None if isinstance(item, Message) else [message for message in item if message not in late] or None

    def _park(self, caller: Caller, messages: Sequence[Message], after: float) -> None:
        """Park messages; after the end they are given back."""
        if self._ended.done():
            self._acks.give_back(messages)
        else:
            super()._park(caller, messages, after)

    def _looks_closer(self, pairs: Sequence[Pair]) -> bool:
        return any(message.reconsume_times > CERTAIN for _, message in pairs)

    def _is_apart(self, taker: Taker, message: Message) -> bool:
        """Whether a message has no attempt left: it becomes a dead letter without a call."""
        if not is_spent(message.reconsume_times, taker.handler.subscription.retries):
            return False
        reason = f"handed out {message.reconsume_times} times before, the last time without an end"
        taker.acks.ended(message if taker.caller.batch is None else [message], DeadLetter(reason), True)
        return True

    def _finish(self) -> None:
        """Give back what was not started: no offset waits for it."""
        for run in self.runs():
            with contextlib.suppress(IndexError):  # a thread may be faster
                while run.items:
                    self._acks.give_back(messages_of(run.items.popleft()[1]))


# Which queues are popped here.


async def shared_out(
    member: Member, topic: str, connected: Iterable[str], present: Iterable[MessageQueue]
) -> tuple[frozenset[MessageQueue], str | None]:
    """The queues that brokers let this member pop. If a broker does not tell, its `present` queues, and why.

    `connected`: names of brokers that can be asked. `present`: the queues until now.
    """
    names = sorted(connected)
    asked = await asyncio.gather(*(_popped_at(member, topic, name) for name in names), return_exceptions=True)
    mine, problem = {queue for queue in present if queue.broker_name not in names}, None
    for name, answer in zip(names, asked, strict=True):
        if isinstance(answer, RocketAppError):
            mine.update(queue for queue in present if queue.broker_name == name)
            problem = problem or str(answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            mine.update(answer)
    return frozenset(mine), problem


async def _popped_at(member: Member, topic: str, broker_name: str) -> set[MessageQueue]:
    """A broker pulls unless it was told otherwise, so it is told. Once it pops, what an operator has set stays."""
    connection = await member.brokers.connection(broker_name)
    question = AssignmentQuestion(topic, member.name, member.client_id)
    try:
        answer = await pop.assigned(connection, question, _ASSIGNED_TIMEOUT)
        if answer is not None and not _are_popped(answer):
            await pop.set_mode(connection, topic, member.name, POP, _ASSIGNED_TIMEOUT)
            answer = await pop.assigned(connection, question, _ASSIGNED_TIMEOUT)
    except BrokerError as error:
        if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            lacks = 'it cannot be popped (mode="pop"): Apache RocketMQ 5.0 and later can'
            raise TransportError(broker_name, lacks) from None
        raise
    if answer is None or not _are_popped(answer):
        raise TransportError(broker_name, f"it does not share out {topic} yet")
    return {each.queue for each in answer if each.queue.broker_name == broker_name}


def _are_popped(answer: Collection[AssignedQueue]) -> bool:
    return bool(answer) and all(each.mode == POP for each in answer)
