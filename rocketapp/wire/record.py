"""A stored message: the record of the commit log, which is also what a pull carries.

`decode_records` is the hottest code of the product. Per message it unpacks the fixed
part once and keeps the tuple; whatever can be computed from it later is a property of
`Message`. IPv6 hosts, long topics, compression and inner batches take a slow path.
How the bytes lie is told in `wire.layout`. Java: MessageDecoder, MessageClientExt.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import RETRY_PREFIX
from rocketapp.wire import properties as names
from rocketapp.wire.batch import decode_batch
from rocketapp.wire.compression import COMPRESSED, inflate
from rocketapp.wire.layout import (
    BORN_IPV6,
    FIXED,
    INNER_BATCH,
    LONGEST_PROPERTIES,
    LONGEST_TOPIC,
    LONGEST_V1_TOPIC,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    NEED_UNWRAP,
    PORT,
    STORE_IPV6,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
    Fixed,
    Parts,
    Record,
    decode_record,
    encode_record,
    take_apart,
    wrong_size,
)
from rocketapp.wire.message_id import offset_id

# A record's parts are used under this one name, wherever in the room they are written.
__all__ = [
    "BORN_IPV6",
    "INNER_BATCH",
    "LONGEST_PROPERTIES",
    "LONGEST_TOPIC",
    "LONGEST_V1_TOPIC",
    "MAGIC_BLANK",
    "MAGIC_V1",
    "MAGIC_V2",
    "NEED_UNWRAP",
    "STORE_IPV6",
    "TRANSACTION_COMMIT",
    "TRANSACTION_MASK",
    "TRANSACTION_PREPARED",
    "TRANSACTION_ROLLBACK",
    "BrokenMessage",
    "CompressedMessage",
    "Message",
    "Record",
    "decode_record",
    "decode_records",
    "encode_record",
]

_SLOW = COMPRESSED | BORN_IPV6 | STORE_IPV6 | NEED_UNWRAP | INNER_BATCH
_UNWRAP = NEED_UNWRAP | INNER_BATCH
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Message:
    """One received message: what a handler gets.

    Lazy: properties are decoded, times and hosts computed when they are asked for.
    """

    __slots__ = ("_fixed", "_properties", "_reconsume_times", "_topic", "body", "offset", "queue", "raw_properties")
    _kept: ClassVar[tuple[str, ...]] = (
        "_fixed",
        "_reconsume_times",
        "_topic",
        "body",
        "offset",
        "queue",
        "raw_properties",
    )
    """What goes along into another process; some of it may be unset."""

    _fixed: Fixed
    _properties: dict[str, str]
    _reconsume_times: int
    _topic: str
    body: bytes
    """As the producer gave it. Of a compressed message that cannot be inflated, reading it raises ProtocolError."""
    offset: int
    """Its place in its queue."""
    queue: MessageQueue | None
    """The queue it was pulled from; None when it was looked up by id."""
    raw_properties: bytes
    """As stored: see `wire.properties`."""

    @property
    def topic(self) -> str:
        """The topic that was subscribed, also of a message that came back for a retry."""
        try:
            return self._topic
        except AttributeError:
            topic = self.queue.topic if self.queue is not None else ""
            if topic.startswith(RETRY_PREFIX):
                topic = self.properties.get(names.RETRY_TOPIC, topic)
            self._topic = topic
            return topic

    @property
    def properties(self) -> Mapping[str, str]:
        """Everything the producer and the brokers wrote beside the body."""
        try:
            return self._properties
        except AttributeError:
            self._properties = decoded = names.decode(self.raw_properties)
            return decoded

    @property
    def tag(self) -> str | None:
        raw = names.tag_of(self.raw_properties)
        return None if raw is None else raw.decode("utf-8", "replace")

    def raw_tag(self) -> bytes | None:
        """The tag as UTF-8, for comparing many messages quickly."""
        return names.tag_of(self.raw_properties)

    @property
    def keys(self) -> list[str]:
        """The index keys, by which operators find a message."""
        return self.properties.get(names.KEYS, "").split()

    @property
    def message_id(self) -> str:
        """The unique id that the producer gave it, or the broker's when it has none."""
        return self.properties.get(names.UNIQ_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The broker's id: where the record is stored."""
        host = self._fixed[11]
        return offset_id(host[:-4], PORT.unpack(host[-4:])[0], self._fixed[6])

    @property
    def stored_body(self) -> bytes:
        """The body as it is stored, perhaps compressed: for copies. ProtocolError when it has none of its own."""
        return self.body

    @property
    def queue_id(self) -> int:
        return self._fixed[3]

    @property
    def physical_offset(self) -> int:
        """Its place in the broker's commit log."""
        return self._fixed[6]

    @property
    def size(self) -> int:
        """Bytes of its record."""
        return self._fixed[0]

    @property
    def flag(self) -> int:
        """A number of the producer's own."""
        return self._fixed[4]

    @property
    def sys_flag(self) -> int:
        return self._fixed[7]

    @property
    def born_ms(self) -> int:
        """Milliseconds since 1970 by the producer's clock."""
        return self._fixed[8]

    @property
    def stored_ms(self) -> int:
        """Milliseconds since 1970 by the broker's clock."""
        return self._fixed[10]

    @property
    def born_at(self) -> datetime:
        """When it was sent, by the producer's clock; UTC."""
        return _datetime(self._fixed[8])

    @property
    def stored_at(self) -> datetime:
        """When it was stored, by the broker's clock; UTC."""
        return _datetime(self._fixed[10])

    @property
    def born_host(self) -> str:
        """The producer's address as the broker saw it: `ip:port`."""
        return _host(self._fixed[9])

    @property
    def reconsume_times(self) -> int:
        """Failed attempts so far. Settable: an orderly retry happens in place, without a new record."""
        try:
            return self._reconsume_times
        except AttributeError:
            return self._fixed[12]

    @reconsume_times.setter
    def reconsume_times(self, times: int) -> None:
        self._reconsume_times = times

    @property
    def attempt(self) -> int:
        """Which attempt this is: the first is 1."""
        return self.reconsume_times + 1

    def text(self) -> str:
        """The body as UTF-8 text; UnicodeDecodeError when it is none."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON; msgspec.DecodeError when it is none."""
        return msgspec.json.decode(self.body)

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: getattr(self, name) for name in self._kept if hasattr(self, name)}
        return _revive, (type(self), state)

    def __repr__(self) -> str:
        place = f"@{self.queue.broker_name}" if self.queue is not None else ""
        tag = f" tag={self.tag}" if self.tag else ""
        return f"<Message {self.topic}{place}:{self.queue_id} #{self.offset}{tag} attempt={self.attempt}>"


class CompressedMessage(Message):
    """A message whose body is inflated when it is asked for."""

    __slots__ = ("_body", "_max_bytes", "_packed")
    _kept: ClassVar[tuple[str, ...]] = (*(name for name in Message._kept if name != "body"), "_max_bytes", "_packed")

    _body: bytes
    _max_bytes: int
    _packed: bytes

    @property
    def body(self) -> bytes:  # type: ignore[override]
        """As the producer gave it, or ProtocolError: each time, so that whoever asks hears why."""
        try:
            return self._body
        except AttributeError:
            self._body = body = inflate(self._packed, self._fixed[7], self._max_bytes)
            return body

    @property
    def stored_body(self) -> bytes:
        return self._packed


class BrokenMessage(Message):
    """A message that was stored as a batch, and whose items cannot be told apart."""

    __slots__ = ("_problem",)
    _kept: ClassVar[tuple[str, ...]] = (*(name for name in Message._kept if name != "body"), "_problem")

    _problem: str

    @property
    def body(self) -> bytes:  # type: ignore[override]
        raise ProtocolError(self._problem)


def _revive(kind: type[Message], state: dict[str, Any]) -> Message:
    message = kind()
    for name, value in state.items():
        setattr(message, name, value)
    return message


def decode_records(data: bytes, queue: MessageQueue | None, *, max_inflated_bytes: int = 16_777_216) -> list[Message]:
    """The messages of concatenated records, as a pull from `queue` brings them.

    Raises ProtocolError when the records themselves are damaged; a body that cannot be
    inflated harms nobody until it is read.
    """
    messages: list[Message] = []
    append, unpack, new = messages.append, FIXED.unpack_from, Message
    at, end = 0, len(data)
    try:
        while at < end:
            fixed = unpack(data, at)
            if fixed[1] != MAGIC_V1 or fixed[7] & _SLOW or queue is None:
                at = _decode_slowly(data, at, queue, max_inflated_bytes, messages)
                continue
            body = at + 88
            body_end = body + fixed[14]
            start = body_end + 3 + data[body_end]
            stop = start + (data[start - 2] << 8 | data[start - 1])
            if stop != at + fixed[0]:
                raise wrong_size(at, fixed[0], stop)
            message = new()
            message._fixed = fixed
            message.body = data[body:body_end]
            message.raw_properties = data[start:stop]
            message.offset = fixed[5]
            message.queue = queue
            append(message)
            at = stop
    except (struct.error, IndexError):
        raise ProtocolError(f"record at byte {at} of {end} is cut short") from None
    if at != end:
        raise ProtocolError(f"the last record ends {at - end} bytes behind the end")
    return messages


def _decode_slowly(data: bytes, at: int, queue: MessageQueue | None, max_bytes: int, messages: list[Message]) -> int:
    """Add the message or messages of one record of any kind; where the next one begins."""
    parts = take_apart(data, at)
    if parts.fixed[7] & _UNWRAP == _UNWRAP:
        messages += _unwrap(parts, queue, max_bytes)
    elif parts.fixed[7] & COMPRESSED:
        packed = CompressedMessage()
        packed._packed, packed._max_bytes = parts.body, max_bytes
        messages.append(_fill(packed, parts, queue))
    else:
        message = Message()
        message.body = parts.body
        messages.append(_fill(message, parts, queue))
    return parts.end


def _fill(message: Message, parts: Parts, queue: MessageQueue | None) -> Message:
    message._fixed = parts.fixed
    message.raw_properties = parts.properties
    message.offset = parts.fixed[5]
    message.queue = queue
    if queue is None:
        message._topic = _own_topic(parts)
    return message


def _own_topic(parts: Parts) -> str:
    topic = parts.topic.decode("utf-8", "replace")
    if topic.startswith(RETRY_PREFIX):
        return names.decode(parts.properties).get(names.RETRY_TOPIC, topic)
    return topic


def _unwrap(parts: Parts, queue: MessageQueue | None, max_bytes: int) -> list[Message]:
    """The messages of an inner batch: item i lies at the record's offset + i and shares all but body and properties."""
    fixed = parts.fixed
    try:
        body = inflate(parts.body, fixed[7], max_bytes) if fixed[7] & COMPRESSED else parts.body
        items = decode_batch(body)
    except ProtocolError as error:
        broken = BrokenMessage()
        broken._problem = f"stored batch cannot be read: {error}"
        return [_fill(broken, parts, queue)]
    sys_flag = fixed[7] & ~(_UNWRAP | COMPRESSED)
    messages = []
    for index, (item, raw, flag) in enumerate(items):
        own: Any = (
            len(item) + len(raw),
            *fixed[1:4],
            flag,
            fixed[5] + index,
            fixed[6],
            sys_flag,
            *fixed[8:14],
            len(item),
        )
        message = Message()
        message.body = item
        messages.append(_fill(message, Parts(own, item, parts.topic, raw, parts.end), queue))
    return messages


def _datetime(ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        raise ProtocolError(f"{ms} ms since 1970 is no time of day") from None


def _host(raw: bytes) -> str:
    port = PORT.unpack(raw[-4:])[0]
    if len(raw) == 8:
        return f"{raw[0]}.{raw[1]}.{raw[2]}.{raw[3]}:{port}"
    return f"[{ipaddress.IPv6Address(raw[:16])}]:{port}"
