"""Sends messages, one by one or in batches.

Every send ends in one of three ways: a SendResult (stored), SendRefused (certainly not stored) or
SendUnknown (perhaps stored). A repeated attempt carries the same unique id as the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Any

from rocketapp.client.calls.send import recall
from rocketapp.client.identity import ip_bytes
from rocketapp.client.instance import ClientInstance
from rocketapp.client.traces import Traces
from rocketapp.clock import Clock
from rocketapp.config.producer import ProducerConfig
from rocketapp.errors import (
    BrokerError,
    ConfigError,
    ConnectError,
    NotRecalled,
    ProtocolError,
    RocketAppError,
    SendRefused,
    SendUnknown,
    TransportError,
    named_message,
)
from rocketapp.model.event import Observe
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.producer.attempts import Attempts, PreparedSend
from rocketapp.producer.batches import BatchSequence, PreparedMessage, batch_sequences, may_share
from rocketapp.producer.in_flight import InFlight
from rocketapp.producer.preparing import MessagePreparer, result_of, results_of
from rocketapp.producer.selection import Choice, RoundRobin, has_wish
from rocketapp.producer.targets import Targets
from rocketapp.producer.transactions import Transactions
from rocketapp.state.broker_latency import BrokerLatency
from rocketapp.wire import properties as names
from rocketapp.wire.compression import compress
from rocketapp.wire.message_id import UniqueIds
from rocketapp.wire.record import Message
from rocketapp.wire.requests.recall import RecallHandle, RecallRequest

# What few apps use is imported where it is made: every start would pay for it.
if TYPE_CHECKING:
    from rocketapp.producer.requests import Requests
    from rocketapp.producer.trace_writer import TraceWriter

AT_ONCE = 64
"""Most requests of one `send_many` that are under way."""


class Producer:
    """One producer group of one client."""

    def __init__(
        self,
        *,
        client: ClientInstance,
        config: ProducerConfig,
        group: str,
        clock: Clock,
        random: Random,
        max_inflated_bytes: int = 16_777_216,
        trace_topic: str | None = None,
        observe: Observe | None = None,
    ) -> None:
        """`max_inflated_bytes`: the most that a compressed reply may inflate to.

        `trace_topic`: where message trace is written; None: message trace is off. `observe` hears of attempts that
        failed; None: that of the client.
        """
        self._random, self._max_inflated_bytes = random, max_inflated_bytes
        self._client, self._config, self._group, self._clock = client, config, group, clock
        latency = BrokerLatency() if config.avoid_slow_brokers else None
        self._turns = RoundRobin(random, latency)
        ids = UniqueIds(ip_bytes(client.client_ip), client.pid, random.getrandbits(32))
        self._preparing = MessagePreparer(config, group=group, ids=ids, clock=clock)
        self._targets = Targets(client, config.topic_queues)
        self._sender_of_traces: Producer | None = None
        self._tracing = None if trace_topic is None else self._new_tracing(trace_topic)
        self._attempts = Attempts(
            client,
            self._targets,
            clock=clock,
            observe=observe or client.observe,
            group=group,
            retries=config.retries,
            in_flight=InFlight(most=config.max_in_flight, most_bytes=config.max_in_flight_bytes),
            turns=self._turns,
            latency=latency,
        )
        self.transactions: Transactions = Transactions(client, group=group, max_inflated_bytes=max_inflated_bytes)
        """The ends of transactions that were begun with a half message."""
        self._requests: Requests | None = None

    def __repr__(self) -> str:
        return f"<Producer {self._group} of {self._client.client_id}>"

    @property
    def requests(self) -> Requests:
        """The requests that wait for a reply."""
        if self._requests is None:
            from rocketapp.producer.requests import Requests

            most = self._max_inflated_bytes
            self._requests = Requests(self._client, self._targets, random=self._random, max_inflated_bytes=most)
        return self._requests

    @property
    def traces(self) -> Traces | None:
        """The message trace that consumers of this client add to; None when message trace is off."""
        return None if self._tracing is None else self._tracing.traces

    async def start(self) -> None:
        """ConfigError when the codec of the configured compression is not installed."""
        if self._config.compression != "none":
            try:
                compress(b"-", self._config.compression, self._config.compression_level)
            except ProtocolError as error:
                raise ConfigError("producer.compression", str(error)) from None
        self._client.register_producer(self._group)
        if self._tracing is not None:
            self._tracing.start()

    async def stop(self) -> None:
        await self._attempts.stop()
        await self.transactions.stop()
        if self._tracing is not None:
            await self._tracing.stop()
        if self._sender_of_traces is not None:
            await self._sender_of_traces.stop()
        self._targets.release()
        await self._client.unregister_producer(self._group)

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult:
        """Send one message. Raises SendRefused or SendUnknown. `timeout`: seconds in total, retries included."""
        limit = timeout or self._config.send_timeout
        message_id, prepared = self._preparing.prepare(message)
        stored = await self._attempts.send(prepared, self._choice(message), limit)
        if self._tracing is not None:
            self._tracing.sent(message, prepared, stored)
        return result_of(message_id, stored)

    async def send_one_way(self, message: Outgoing) -> None:
        """Send without a response: the message may be lost. Raises SendRefused when it could not be written."""
        if message.half:
            raise SendRefused(message.topic, "a transaction needs the answer of the broker", True)
        _, prepared = self._preparing.prepare(message)
        await self._attempts.post(prepared, self._choice(message), self._config.send_timeout)

    async def send_raw(
        self,
        topic: str,
        body: bytes,
        properties: Mapping[str, str],
        *,
        broker_name: str | None = None,
        reconsume_times: int = 0,
        max_reconsume_times: int | None = None,
        sys_flag: int = 0,
        flag: int = 0,
        timeout: float | None = None,
    ) -> SendResult:
        """Send what was received before: body and flags as they are, any property.

        For retry topics and dead letters. `broker_name` is preferred, not insisted on.
        """
        complete = dict(properties)
        message_id = complete.setdefault(names.UNIQ_KEY, self._preparing.next_id())
        request = self._preparing.request(
            topic,
            self._preparing.encoded(topic, complete),
            sys_flag=sys_flag,
            flag=flag,
            reconsume_times=reconsume_times,
            max_reconsume_times=max_reconsume_times,
        )
        prepared, choose = PreparedSend(request, body), Choice(self._turns, prefer=broker_name)
        return result_of(message_id, await self._attempts.send(prepared, choose, timeout or self._config.send_timeout))

    async def reply(self, request: Message, body: bytes, properties: Mapping[str, str]) -> None:
        """Answer a request; returns when the client that asked has the answer.

        SendRefused: it is not a request. SendUnknown: no broker said that the client has it, which may be gone or have
        waited no longer.
        """
        from rocketapp.wire.requests.replies import reply_to

        to = reply_to(request.properties)
        if to is None:
            named = named_message(request.message_id, request.keys)
            problem = f"message {named} does not say where a reply goes: only messages sent by request() do"
            raise SendRefused(request.topic, problem, True)
        message = Outgoing(topic=to.topic, body=body, properties=properties, marks=to.marks)
        _, prepared = self._preparing.prepare(message)
        # The client that asked is connected to the broker that took its request.
        broker_name = None if request.queue is None else request.queue.broker_name
        choose = Choice(self._turns, prefer=broker_name)
        await self._attempts.send(prepared._replace(reply=True), choose, self._config.send_timeout)

    async def recall(self, topic: str, handle: str, timeout: float) -> str:
        """Take back a message that waits for a broker's timer, and return its id. Raises NotRecalled.

        The broker stores the recall as a message of its own, and drops both when the time has come. It may be repeated.
        """
        try:
            said = RecallHandle.decode(handle)
        except ProtocolError as error:
            raise NotRecalled(topic, str(error)) from None
        # In a namespace brokers know it by its longer name.
        if said.topic != topic and not said.topic.endswith(f"%{topic}"):
            raise NotRecalled(topic, f"the handle is that of a message of topic {said.topic}")
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        try:
            connection = await self._attempts.connection(topic, said.broker_name, end)
            request = RecallRequest(topic, handle, self._group, said.broker_name)
            await recall(connection, request, max(end - loop.time(), 0.001))
        except SendRefused as error:
            raise NotRecalled(topic, error.reason) from None
        except BrokerError as error:
            raise NotRecalled(topic, str(error)) from None
        except (TransportError, ProtocolError) as error:
            raise NotRecalled(topic, str(error), perhaps=not isinstance(error, ConnectError)) from None
        return said.message_id

    async def send_many(self, messages: Sequence[Outgoing]) -> list[SendResult]:
        """Results in the order of the messages.

        SendRefused: none of them is stored. SendUnknown: some are, or may be; its text says how many.
        """
        for number, message in enumerate(messages):
            if problem := self._preparing.problem_of(message):
                raise SendRefused(message.topic, f"message {number} of {len(messages)}: {problem}", True)
        results: list[SendResult | None] = [None] * len(messages)
        sequences = await self._sequences(messages)
        alone = [index for index, message in enumerate(messages) if not may_share(message)]
        # Made one by one as their turn comes: a hundred thousand messages must not be as many tasks.
        sends = chain(
            (self._send_sequence(sequence, messages, results) for sequence in sequences),
            (self._send_alone(index, messages, results) for index in alone),
        )
        failures: list[Exception] = []
        senders = min(AT_ONCE, len(sequences) + len(alone))
        await asyncio.gather(*(_send_in_turn(sends, failures) for _ in range(senders)))
        return _all_or_raise(messages, results, failures)

    def _new_tracing(self, topic: str) -> TraceWriter:
        from rocketapp.producer.trace_writer import TIMEOUT, TraceWriter

        # Packing would cost more than all the rest of a record, and attempts to send one are not those of the app.
        own = ProducerConfig(
            compression="none", topic_queues=self._config.topic_queues, max_in_flight=0, max_in_flight_bytes=0
        )
        self._sender_of_traces = Producer(
            client=self._client,
            config=own,
            group=f"_INNER_TRACE_PRODUCER-{self._group}",
            clock=self._clock,
            random=self._random,
            observe=lambda _: None,
        )
        send = partial(self._sender_of_traces.send, timeout=TIMEOUT)
        return TraceWriter(self._client, topic, group=self._group, clock=self._clock, send=send)

    # One message.

    def _choice(self, message: Outgoing) -> Choice:
        return Choice(self._turns, wish=message if has_wish(message) else None)

    # Many messages.

    async def _sequences(self, messages: Sequence[Outgoing]) -> list[BatchSequence]:
        by_topic: dict[str, list[tuple[Outgoing, PreparedMessage]]] = {}
        for index, message in enumerate(messages):
            if may_share(message):
                by_topic.setdefault(message.topic, []).append((message, self._preparing.item(index, message)))
        sequences = []
        for topic, items in by_topic.items():
            queues = await self._attempts.queues(topic, self._config.send_timeout)
            sequences += batch_sequences(topic, items, queues, self._config.max_message_bytes)
        return sequences

    async def _send_alone(self, index: int, messages: Sequence[Outgoing], results: list[SendResult | None]) -> None:
        results[index] = await self.send(messages[index])

    async def _send_sequence(
        self, sequence: BatchSequence, messages: Sequence[Outgoing], results: list[SendResult | None]
    ) -> None:
        choose = Choice(self._turns, wish=sequence.queue)
        for batch in sequence.batches:
            prepared = self._preparing.batch(sequence.topic, batch)
            stored = await self._attempts.send(prepared, choose, self._config.send_timeout)
            if self._tracing is not None:
                self._tracing.sent_batch(sequence.topic, batch, stored)
            for item, result in zip(batch, results_of(batch, stored), strict=True):
                results[item.number] = result


async def _send_in_turn(sends: Iterator[Coroutine[Any, Any, None]], failures: list[Exception]) -> None:
    """Await these sends one after the other. A failure is noted in `failures` and does not stop the rest."""
    for send in sends:
        try:
            await send
        except Exception as error:
            # The caller gets every failure when all are done.
            failures.append(error)


def _all_or_raise(
    messages: Sequence[Outgoing], results: Sequence[SendResult | None], failures: Sequence[Exception]
) -> list[SendResult]:
    for failure in failures:
        if not isinstance(failure, RocketAppError):
            raise failure
    complete = [result for result in results if result is not None]
    if not failures:
        return complete
    if not complete and all(isinstance(failure, SendRefused) for failure in failures):
        raise failures[0]
    reasons = "; ".join(dict.fromkeys(map(str, failures)))
    topics = ", ".join(sorted({message.topic for message in messages}))
    raise SendUnknown(topics, f"{len(complete)} of {len(messages)} messages are stored; {reasons}")
