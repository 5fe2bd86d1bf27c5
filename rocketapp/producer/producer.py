"""Sends messages, one by one or in batches.

Every send ends in one of three ways: a SendResult (stored), SendRefused (certainly not stored) or
SendUnknown (perhaps stored). A repeated attempt carries the same unique id as the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from random import Random
from typing import Any

from rocketapp.client.identity import ip_bytes
from rocketapp.client.instance import ClientInstance
from rocketapp.clock import Clock
from rocketapp.config.producer import ProducerConfig
from rocketapp.errors import (
    ConfigError,
    ProtocolError,
    RocketAppError,
    SendRefused,
    SendUnknown,
)
from rocketapp.model.event import Observe
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.producer.attempts import Accepted, Attempts, Choose, PreparedSend
from rocketapp.producer.batches import BatchSequence, Item, batch_sequences, may_share
from rocketapp.producer.checks import problem_of, properties_size_problem
from rocketapp.producer.in_flight import InFlight
from rocketapp.producer.recalls import Recalls
from rocketapp.producer.requests import Requests
from rocketapp.producer.selection import ByKey, Fixed, InTurn, RoundRobin, Usable
from rocketapp.producer.targets import Targets
from rocketapp.producer.transactions import Transactions
from rocketapp.state.broker_latency import BrokerLatency
from rocketapp.wire import properties as names
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.compression import compress, sys_flag_of
from rocketapp.wire.layout import TRANSACTION_PREPARED
from rocketapp.wire.message_id import UniqueIds
from rocketapp.wire.record import Message
from rocketapp.wire.requests.replies import reply_to

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
        observe: Observe,
        max_inflated_bytes: int = 16_777_216,
    ) -> None:
        """`max_inflated_bytes`: the most that a compressed reply may inflate to."""
        self._client, self._config, self._group, self._clock = client, config, group, clock
        self._turns = RoundRobin(random)
        self._ids = UniqueIds(ip_bytes(client.client_ip), client.pid, random.getrandbits(32))
        self._targets = Targets(client, config.topic_queues)
        self._latency = BrokerLatency() if config.latency_fault else None
        self._attempts = Attempts(
            client,
            self._targets,
            clock=clock,
            observe=observe,
            group=group,
            retries=config.retries,
            topic_queues=config.topic_queues,
            in_flight=InFlight(most=config.max_in_flight, most_bytes=config.max_in_flight_bytes),
            latency=self._latency,
        )
        self.transactions: Transactions = Transactions(
            client, group=group, observe=observe, max_inflated_bytes=max_inflated_bytes
        )
        """The ends of transactions that were begun with a half message."""
        self.requests: Requests = Requests(
            client, observe=observe, random=random, max_inflated_bytes=max_inflated_bytes
        )
        """The requests that wait for their reply."""
        self.recalls: Recalls = Recalls(client, self._targets, group=group)
        """Takes messages back that wait for their time."""

    def __repr__(self) -> str:
        return f"<Producer {self._group} of {self._client.client_id}>"

    async def start(self) -> None:
        """ConfigError when the codec of the configured compression is not installed."""
        if self._config.compression != "none":
            try:
                compress(b"-", self._config.compression, self._config.compression_level)
            except ProtocolError as error:
                raise ConfigError("producer.compression", str(error)) from None
        self._client.register_producer(self._group)

    async def stop(self) -> None:
        await self.transactions.stop()
        self.requests.stop()
        self._targets.release()
        await self._client.unregister_producer(self._group)

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult:
        """Where it is stored; SendRefused, SendUnknown. `timeout`: seconds in total, retries included."""
        message_id, prepared = self._prepare(message)
        stored = await self._attempts.send(prepared, self._chooser(message), timeout or self._config.send_timeout)
        return _result(message_id, stored)

    async def send_one_way(self, message: Outgoing) -> None:
        """Send without an answer: it may be lost. SendRefused when it could not be written."""
        if message.half:
            raise SendRefused(message.topic, "a transaction needs the answer of the broker", True)
        _, prepared = self._prepare(message)
        await self._attempts.post(prepared, self._chooser(message), self._config.send_timeout)

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
        message_id = complete.setdefault(names.UNIQ_KEY, self._ids.next(self._clock.now()))
        prepared = PreparedSend(
            topic=topic,
            body=body,
            properties=self._encoded(topic, complete).decode(),
            sys_flag=sys_flag,
            flag=flag,
            reconsume_times=reconsume_times,
            max_reconsume_times=max_reconsume_times,
        )
        choose = InTurn(self._turns, prefer=broker_name, usable=self._usable_now())
        return _result(message_id, await self._attempts.send(prepared, choose, timeout or self._config.send_timeout))

    async def reply(
        self, request: Message, body: bytes, properties: Mapping[str, str], *, timeout: float | None = None
    ) -> None:
        """Answer a request; returns when the client that asked has the answer.

        SendRefused: it is not a request. SendUnknown: no broker said that the client has it, which may be gone or have
        waited no longer.
        """
        to = reply_to(request.properties)
        if to is None:
            raise SendRefused(request.topic, f"{request} is no request: it does not say where a reply goes", True)
        message = Outgoing(topic=to.topic, body=body, properties=properties, marks=to.marks)
        _, prepared = self._prepare(message)
        # The client that asked is connected to the broker that took its request.
        broker_name = None if request.queue is None else request.queue.broker_name
        choose = InTurn(self._turns, prefer=broker_name)
        await self._attempts.send(replace(prepared, reply=True), choose, timeout or self._config.send_timeout)

    async def send_many(self, messages: Sequence[Outgoing]) -> list[SendResult]:
        """Results in the order of the messages.

        SendRefused: none of them is stored. SendUnknown: some are, or may be; its text says how many.
        """
        for number, message in enumerate(messages):
            if problem := problem_of(message, self._config.max_message_bytes):
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

    # One message.

    def _prepare(self, message: Outgoing) -> tuple[str, PreparedSend]:
        if problem := problem_of(message, self._config.max_message_bytes):
            raise SendRefused(message.topic, problem, True)
        message_id = self._ids.next(self._clock.now())
        properties = _properties(message, message_id)
        body, sys_flag = self._compressed(message.body)
        if message.half:
            properties[names.TRAN_MSG], properties[names.PGROUP] = "true", self._group
            sys_flag |= TRANSACTION_PREPARED
        encoded = self._encoded(message.topic, properties).decode()
        return message_id, PreparedSend(
            topic=message.topic, body=body, properties=encoded, sys_flag=sys_flag, delay=message.delay
        )

    def _compressed(self, body: bytes) -> tuple[bytes, int]:
        kind = self._config.compression
        if kind == "none" or len(body) < self._config.compress_above_bytes:
            return body, 0
        packed = compress(body, kind, self._config.compression_level)
        return (packed, sys_flag_of(kind)) if len(packed) < len(body) else (body, 0)

    def _encoded(self, topic: str, properties: Mapping[str, str]) -> bytes:
        try:
            encoded = names.encode(properties)
        except ProtocolError as error:
            raise SendRefused(topic, str(error), True) from None
        if problem := properties_size_problem(encoded):
            raise SendRefused(topic, problem, True)
        return encoded

    def _chooser(self, message: Outgoing) -> Choose:
        if message.queue is not None:
            return Fixed(message.queue)
        return InTurn(self._turns, usable=self._usable_now()) if message.order_key is None else ByKey(message.order_key)

    def _usable_now(self) -> Usable | None:
        """Which brokers are not passed over now; None when that is not asked for."""
        if self._latency is None:
            return None
        return partial(self._latency.is_available, now=asyncio.get_running_loop().time())

    # Many messages.

    async def _sequences(self, messages: Sequence[Outgoing]) -> list[BatchSequence]:
        by_topic: dict[str, list[tuple[Outgoing, Item]]] = {}
        for index, message in enumerate(messages):
            if may_share(message):
                message_id = self._ids.next(self._clock.now())
                encoded = self._encoded(message.topic, _properties(message, message_id))
                item = Item(index, message_id, message.body, encoded)
                by_topic.setdefault(message.topic, []).append((message, item))
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
        choose: Choose = (
            InTurn(self._turns, usable=self._usable_now()) if sequence.queue is None else Fixed(sequence.queue)
        )
        for batch in sequence.batches:
            if len(batch) == 1:
                # Alone it may be compressed, and its properties are its own for every broker.
                item = batch[0]
                body, sys_flag = self._compressed(item.body)
                prepared = PreparedSend(
                    topic=sequence.topic, body=body, properties=item.properties.decode(), sys_flag=sys_flag
                )
            else:
                # Brokers up to 5.3.3 let the properties of the request win over those of its messages.
                wrapper = {names.UNIQ_KEY: self._ids.next(self._clock.now()), names.WAIT: "true"}
                body = encode_batch((item.body, item.properties, 0) for item in batch)
                prepared = PreparedSend(
                    topic=sequence.topic, body=body, properties=names.encode(wrapper).decode(), batch=True
                )
            stored = await self._attempts.send(prepared, choose, self._config.send_timeout)
            for item, result in zip(batch, _results(batch, stored), strict=True):
                results[item.index] = result


def _properties(message: Outgoing, message_id: str) -> dict[str, str]:
    """In the order in which a Java HashMap happens to list them: frames compare equal."""
    properties = {names.KEYS: " ".join(message.keys)} if message.keys else {}
    properties.update(message.properties)
    properties[names.UNIQ_KEY] = message_id
    properties[names.WAIT] = "true"
    if message.delay_level:
        properties[names.DELAY] = str(message.delay_level)
    if message.tag:
        properties[names.TAGS] = message.tag
    properties.update(message.marks)
    return properties


def _result(message_id: str, stored: Accepted) -> SendResult:
    response = stored.sent.response
    queue = stored.queue._replace(queue_id=response.queue_id)
    return SendResult(
        message_id, response.message_id, queue, response.queue_offset, stored.sent.status, response.recall_handle
    )


def _results(batch: Sequence[Item], stored: Accepted) -> list[SendResult]:
    """The answer to a batch lists the messages' ids; their offsets follow each other."""
    whole = _result(batch[0].message_id, stored)
    if len(batch) == 1:
        return [whole]
    ids = whole.offset_message_id.split(",")
    return [
        SendResult(
            item.message_id,
            ids[number] if len(ids) == len(batch) else "",
            whole.queue,
            whole.queue_offset + number,
            whole.status,
        )
        for number, item in enumerate(batch)
    ]


async def _send_in_turn(sends: Iterator[Coroutine[Any, Any, None]], failures: list[Exception]) -> None:
    """Send one after the other until none is left; a failure does not keep the others from being sent."""
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
