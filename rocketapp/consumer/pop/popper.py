"""The loop that asks one broker for messages of one topic.

The next request is under way before the present answer is handed over, as long as few messages are in flight. An
answer is never discarded: its messages are hidden from everyone else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from rocketapp.client.calls import pop
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.brokers import LOST_PATIENCE
from rocketapp.consumer.member import Member
from rocketapp.consumer.pop.acks import PopAcks
from rocketapp.consumer.pop.delivery import PopDelivery
from rocketapp.consumer.pull.flow import QueueFlow
from rocketapp.errors import ProtocolError, RocketAppError, TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Handle
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.pop_queue import RENEW_AT, HandOut, hidden_since
from rocketapp.transport.connection import Connection
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.pop import FROM_FIRST, OF_TOPIC, PopRequest, PopResponse, handle_in

_ANSWER_TIME = 1.0
"""Seconds after which a request that was not answered is held by a broker that has nothing."""
_SHORT_POLL = 1.0
"""Seconds that a broker may keep a request while messages may come again: it wakes none for them."""
_ANSWER_LATE = 10.0
"""Seconds that an answer may be late (Java: the same)."""
_KNOWS_SUSPEND = 513
"""Version of a broker (V5_5_0 in Java's MQVersion) from which a message that is given back has no attempt more."""


class Coming(NamedTuple):
    """A request for messages that is under way."""

    answer: asyncio.Future[Command]
    connection: Connection
    sent_at: float
    poll: float
    """Seconds that the broker may keep it while there is nothing."""
    invisible: float
    """Seconds for which its messages are hidden from other members."""
    wanted: SubscriptionData
    """What it asks for."""


class Popper:
    """Asks one broker for messages of one topic, for as long as it is owned."""

    def __init__(self, member: Member, acks: PopAcks, delivery: PopDelivery, flow: QueueFlow) -> None:
        """`acks` knows what is in flight, and whether messages that we have failed on come again."""
        self._member, self._acks, self._delivery, self._flow = member, acks, delivery, flow
        self._queue, self._about = acks.queue, acks.queue.message_queue
        self._loop = asyncio.get_running_loop()
        self.coming: Coming | None = None
        """The request under way."""

    def __repr__(self) -> str:
        return f"<Popper {self._about}>"

    @property
    def _config(self) -> ConsumerConfig:
        """The settings of the topic now."""
        return self._member.limits.of(self._about.topic)

    async def run(self) -> None:
        """Until cancelled; then `coming` may still be answered."""
        await self._member.repeat(self._pop, f"pop {self._about}", self._config.pull_retry_delay)

    async def _pop(self) -> None:
        try:
            await self._pop_on()
        except RocketAppError as error:
            patience = LOST_PATIENCE if isinstance(error, TransportError) else 0.0
            self._flow.stops(f"pop failed: {error}", "pop failed", patience)
            self._queue.is_empty_since = None
            await asyncio.sleep(self._member.brokers.wait_after(error, self._about.topic))

    async def _pop_on(self) -> None:
        if self.coming is None:
            if self._flow.is_paused:  # nobody asks
                self._queue.is_empty_since = None
            await self._flow.passed()
            self.coming = await self._start(self._poll())
        coming = self.coming
        if not (await asyncio.wait([coming.answer], timeout=_ANSWER_TIME))[0]:
            # Neither answered nor refused: the broker holds the request until there is a message.
            self._is_empty()
            await asyncio.wait([coming.answer])
        self.coming = None
        self._flow.release()
        messages = self.took(coming)
        self._member.stats.pulls += 1
        self._flow.moves()
        if not messages:
            self._is_empty()
            return
        self._member.stats.pulled[self._about.topic] += len(messages)
        # What was just taken counts: the next request is sent before handlers have their turn.
        try:
            if self._flow.may_pull():
                self.coming = await self._start(self._poll())
        finally:
            self._hand_on(coming, messages)

    def _hand_on(self, coming: Coming, messages: Sequence[Message]) -> None:
        if self._flow.is_paused and coming.answer.result().version >= _KNOWS_SUSPEND:
            # Other members may handle them meanwhile. What counts attempts would make dead letters of them in the end.
            self._acks.give_back(messages)
        else:
            self._delivery.deliver(messages)

    def took(self, coming: Coming) -> Sequence[Message]:
        """The messages of an answer that has come: from now on they are in flight. Raises RocketAppError."""
        result = pop.read(coming.answer.result(), coming.connection)
        if not result.body:
            return ()
        queue = self._queue
        queue.rest, queue.is_empty_since = result.answer.rest, None
        messages, found = hand_outs(
            result.answer,
            result.body,
            self._about,
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
        queue = self._queue
        queue.rest = 0
        if queue.is_empty_since is None:
            queue.is_empty_since = self._loop.time()
        self._flow.moves()

    def _poll(self) -> float:
        """Seconds that the broker may keep a request: an answer that comes late has half of its hidden time left."""
        most = min(self._config.long_poll, RENEW_AT * self._config.pop_invisible_time)
        return min(most, _SHORT_POLL) if self._acks.expects_retries else most

    async def _start(self, poll: float) -> Coming:
        """`poll`: seconds that the broker may keep the request while there is nothing."""
        member = self._member
        connection = await member.brokers.connection(self._about.broker_name)
        config = self._config  # only now: it may have changed meanwhile
        wanted = member.brokers.carried.get(self._about.topic) or member.subscriptions[self._about.topic]
        request = PopRequest(
            group=member.name,
            topic=self._about.topic,
            queue_id=self._about.queue_id,
            max_messages=config.pop_batch_size,
            invisible_ms=round(config.pop_invisible_time * 1000),
            poll_ms=round(poll * 1000),
            # Start positions are committed before: only a queue that has appeared since is read from its beginning.
            init_mode=FROM_FIRST,
            expression=wanted.expression,
            expression_type=wanted.expression_type,
        )
        answer = pop.start(connection, request, poll + _ANSWER_LATE)
        return Coming(answer, connection, self._loop.time(), poll, config.pop_invisible_time, wanted)


Key = tuple[int, int, int, int]
"""Kind, queue id, first offset, and when it was handed out."""


def hand_outs(
    answer: PopResponse, body: bytes, queue: MessageQueue, *, at: float, max_inflated_bytes: int
) -> tuple[list[Message], list[tuple[HandOut, list[Message]]]]:
    """The messages in their order, and the same by hand-out. Raises ProtocolError.

    `queue` names topic and broker; each message names its own queue. `at`: the loop's time since
    when they are hidden.
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
    """Of brokers that do not say so in the message: one of a retry topic counts its attempts, or has no other place."""
    of_topic = answer.offsets.get((OF_TOPIC, message.queue_id), ())
    if message.reconsume_times or message.offset not in of_topic:
        for kind, queue_id in retries:
            if queue_id == message.queue_id and message.offset in answer.offsets.get((kind, queue_id), ()):
                return kind
    return OF_TOPIC
