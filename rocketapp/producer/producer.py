"""Sends messages, one by one or in batches.

Every send ends in one of three ways: a SendResult (stored), SendRefused (certainly not stored) or
SendUnknown (perhaps stored). A repeated attempt carries the same unique id as the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping, Sequence
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
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.producer.attempts import Accepted, Attempts, Choose, PreparedSend
from rocketapp.producer.batches import BatchSequence, Item, batch_sequences, may_share
from rocketapp.producer.checks import problem_of, properties_size_problem
from rocketapp.producer.selection import RoundRobin, queue_of_key
from rocketapp.producer.targets import Targets
from rocketapp.wire import properties as names
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.compression import compress, sys_flag_of
from rocketapp.wire.message_id import UniqueIds

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
    ) -> None:
        self._client, self._config, self._group, self._clock = client, config, group, clock
        self._turns = RoundRobin(random)
        self._ids = UniqueIds(ip_bytes(client.client_ip), client.pid, random.getrandbits(32))
        self._targets = Targets(client, config.topic_queues)
        self._attempts = Attempts(
            client,
            self._targets,
            clock=clock,
            observe=observe,
            group=group,
            retries=config.retries,
            topic_queues=config.topic_queues,
        )

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
        self._targets.release()
        await self._client.unregister_producer(self._group)

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult:
        """Where it is stored; SendRefused, SendUnknown. `timeout`: seconds in total, retries included."""
        message_id, prepared = self._prepare(message)
        stored = await self._attempts.send(prepared, self._chooser(message), timeout or self._config.send_timeout)
        return _result(message_id, stored)

    async def send_one_way(self, message: Outgoing) -> None:
        """Send without an answer: it may be lost. SendRefused when it could not be written."""
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
        choose = _InTurn(self._turns, prefer=broker_name)
        return _result(message_id, await self._attempts.send(prepared, choose, timeout or self._config.send_timeout))

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
        properties = self._encoded(message.topic, _properties(message, message_id)).decode()
        body, sys_flag = self._compressed(message.body)
        return message_id, PreparedSend(topic=message.topic, body=body, properties=properties, sys_flag=sys_flag)

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
            return _Fixed(message.queue)
        return _InTurn(self._turns) if message.order_key is None else _ByKey(message.order_key)

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
        choose: Choose = _InTurn(self._turns) if sequence.queue is None else _Fixed(sequence.queue)
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


class _Fixed:
    """This queue and no other."""

    moves = False

    def __init__(self, queue: MessageQueue) -> None:
        self._queue = queue

    def __call__(self, queues: Sequence[MessageQueue], avoid: str | None, /) -> MessageQueue:
        return self._queue


class _ByKey:
    """The key's queue, and the same again for every further attempt."""

    moves = False

    def __init__(self, key: str) -> None:
        self._key = key
        self._queue: MessageQueue | None = None

    def __call__(self, queues: Sequence[MessageQueue], avoid: str | None, /) -> MessageQueue:
        if self._queue is None:
            self._queue = queue_of_key(self._key, queues)
        return self._queue


class _InTurn:
    """The next queue, and one on another broker after a failure."""

    moves = True

    def __init__(self, turns: RoundRobin, prefer: str | None = None) -> None:
        self._turns, self._prefer = turns, prefer

    def __call__(self, queues: Sequence[MessageQueue], avoid: str | None, /) -> MessageQueue:
        preferred = [queue for queue in queues if queue.broker_name == self._prefer] if avoid is None else []
        return self._turns.next(preferred or queues, avoid)


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
    return properties


def _result(message_id: str, stored: Accepted) -> SendResult:
    response = stored.sent.response
    queue = stored.queue._replace(queue_id=response.queue_id)
    return SendResult(message_id, response.message_id, queue, response.queue_offset, stored.sent.status)


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
