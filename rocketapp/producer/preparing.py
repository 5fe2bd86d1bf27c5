"""Turns messages into requests: checks them, adds an id, encodes them, and compresses large bodies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rocketapp.clock import Clock
from rocketapp.config.producer import ProducerConfig
from rocketapp.errors import ProtocolError, SendRefused
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.producer.attempts import Accepted, PreparedSend
from rocketapp.producer.batches import PreparedMessage
from rocketapp.producer.checks import problem_of, properties_size_problem
from rocketapp.wire import properties as names
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.compression import compress, sys_flag_of
from rocketapp.wire.layout import TRANSACTION_PREPARED
from rocketapp.wire.message_id import UniqueIds
from rocketapp.wire.requests.send import SendRequest


class MessagePreparer:
    """Checks, encodes and compresses the messages of one producer group."""

    def __init__(self, config: ProducerConfig, *, group: str, ids: UniqueIds, clock: Clock) -> None:
        self._config, self._group, self._ids, self._clock = config, group, ids, clock

    def next_id(self) -> str:
        """A new unique message id."""
        return self._ids.next(self._clock.now())

    def problem_of(self, message: Outgoing) -> str | None:
        """Why this message cannot be sent, or None."""
        return problem_of(message, self._config.max_message_bytes)

    def prepare(self, message: Outgoing) -> tuple[str, PreparedSend]:
        """The request for a single message, and its id. Raises SendRefused."""
        if problem := self.problem_of(message):
            raise SendRefused(message.topic, problem, True)
        message_id = self.next_id()
        properties = _properties(message, message_id)
        body, sys_flag = self._compressed(message.body)
        if message.half:
            properties[names.TRAN_MSG], properties[names.PGROUP] = "true", self._group
            sys_flag |= TRANSACTION_PREPARED
        request = self.request(message.topic, self.encoded(message.topic, properties), sys_flag=sys_flag)
        return message_id, PreparedSend(request, body, delay=message.delay)

    def request(self, topic: str, properties: bytes, **more: Any) -> SendRequest:
        """The header of a send request. `more`: further fields of SendRequest."""
        queues = self._config.topic_queues
        return SendRequest(self._group, topic, default_queues=queues, properties=properties.decode(), **more)

    def item(self, number: int, message: Outgoing) -> PreparedMessage:
        """A message encoded for a batch; checked before. Raises SendRefused for properties that are too long."""
        message_id = self.next_id()
        return PreparedMessage(
            number, message_id, message.body, self.encoded(message.topic, _properties(message, message_id))
        )

    def batch(self, topic: str, items: Sequence[PreparedMessage]) -> PreparedSend:
        """One request for all these messages."""
        if len(items) == 1:
            # Alone it may be compressed, and its properties are its own for every broker.
            body, sys_flag = self._compressed(items[0].body)
            return PreparedSend(self.request(topic, items[0].properties, sys_flag=sys_flag), body)
        # Brokers up to 5.3.3 let the properties of the request win over those of its messages.
        wrapper = {names.UNIQ_KEY: self.next_id(), names.WAIT: "true"}
        body = encode_batch((item.body, item.properties, 0) for item in items)
        return PreparedSend(self.request(topic, names.encode(wrapper), batch=True), body)

    def encoded(self, topic: str, properties: Mapping[str, str]) -> bytes:
        """The encoded properties. Raises SendRefused when they cannot be encoded or are too long."""
        try:
            encoded = names.encode(properties)
        except ProtocolError as error:
            raise SendRefused(topic, str(error), True) from None
        if problem := properties_size_problem(encoded):
            raise SendRefused(topic, problem, True)
        return encoded

    def _compressed(self, body: bytes) -> tuple[bytes, int]:
        kind = self._config.compression
        if kind == "none" or len(body) < self._config.compress_above_bytes:
            return body, 0
        packed = compress(body, kind, self._config.compression_level)
        return (packed, sys_flag_of(kind)) if len(packed) < len(body) else (body, 0)


def result_of(message_id: str, stored: Accepted) -> SendResult:
    """The result of a send that a broker stored."""
    response = stored.sent.response
    queue = stored.queue
    if queue.queue_id != response.queue_id:
        queue = queue._replace(queue_id=response.queue_id)
    return SendResult(
        message_id, response.message_id, queue, response.queue_offset, stored.sent.status, response.recall_handle
    )


def results_of(batch: Sequence[PreparedMessage], stored: Accepted) -> list[SendResult]:
    """The results of a batch: the response lists the message ids, and their offsets are consecutive."""
    whole = result_of(batch[0].message_id, stored)
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


def _properties(message: Outgoing, message_id: str) -> dict[str, str]:
    """The properties to send, in the order in which a Java HashMap lists them: so frames equal Java's."""
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
