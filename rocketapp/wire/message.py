"""A received message, as handlers get it: a lazy view of its record.

`wire.record` makes messages and fills a few slots. Everything else is computed when it is
first used.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, TypedDict

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import RETRY_PREFIX
from rocketapp.model.outcome import DeadLetter
from rocketapp.wire import properties as names
from rocketapp.wire.body import encode_body
from rocketapp.wire.compression import inflate
from rocketapp.wire.layout import FAILED, FIXED, PORT, Fixed, Record, encode_record, take_apart
from rocketapp.wire.message_id import offset_id


class Unreadable(DeadLetter):
    """The body is not what the handler reads it as, and no retry makes it so: its message is a dead letter."""

    source: Message
    """Whose body it is. Other messages of a batch are retried."""


class UnreadableJson(Unreadable, msgspec.DecodeError):
    """The body is not JSON."""

    def __init__(self, source: Message, error: Exception) -> None:
        super().__init__(f"the body cannot be read as JSON: {error}")
        self.source: Message = source
        self._error = error

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self._error)


class UnreadableText(Unreadable, UnicodeDecodeError):  # noqa: N818 - an outcome
    """The body is not UTF-8."""

    def __init__(self, source: Message, error: UnicodeDecodeError) -> None:
        facts = (error.encoding, error.object, error.start, error.end)
        UnicodeDecodeError.__init__(self, *facts, f"the body cannot be read as text: {error}")
        self.source: Message = source
        self._error = error

    def __str__(self) -> str:
        return self.reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.source, self._error)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MADE_MS = 1_795_000_000_000
"""When messages of `Message.make` were sent and stored if it is not told: where the testing kit's time begins."""
_made = itertools.count(1)
"""Numbers the made messages that are given no id."""


class MessageFacts(TypedDict, total=False):
    """The keywords of `Message.make`."""

    topic: str
    tag: str | None
    keys: str | Iterable[str]
    properties: Mapping[str, str] | None
    attempt: int
    queue: MessageQueue | None
    offset: int
    message_id: str | None
    born_at: datetime | None
    stored_at: datetime | None


class Message:
    """One received message, as handlers get it.

    Properties are decoded at their first use, and times and hosts are computed at every use.
    """

    __slots__ = ("_facts", "_head", "_properties", "_topic", "body", "offset", "queue", "raw_properties", "size")
    _kept: ClassVar[tuple[str, ...]] = tuple(name for name in __slots__ if name != "_properties")
    """The attributes that are pickled; some of them may be unset."""

    _facts: Fixed | None
    """The fixed part of its record; None until it is used."""
    _head: bytes
    """The bytes of the fixed part; set only when `_facts` is None at first."""
    _properties: dict[str, str]
    _topic: str
    """The stored topic; set only when `queue` is None."""
    body: bytes
    """The body as the producer sent it. Reading it raises ProtocolError when a compressed body cannot be inflated."""
    offset: int
    """Its offset in its queue."""
    queue: MessageQueue | None
    """The queue from which it was pulled; None when it was looked up by id."""
    raw_properties: bytes
    """The encoded properties: see `wire.properties`."""
    size: int
    """Bytes of its stored record."""

    @staticmethod
    def make(
        body: Any = b"",
        *,
        topic: str = "test",
        tag: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        attempt: int = 1,
        queue: MessageQueue | None = None,
        offset: int = 0,
        message_id: str | None = None,
        born_at: datetime | None = None,
        stored_at: datetime | None = None,
    ) -> Message:
        """A message as a pull brings it, for tests.

        body: whatever can be published, as JSON where it has fields. attempt: 1 for the first. queue: where it was
        pulled from; None is queue 0 of `topic` on broker-a. message_id: None for one that no other made message has.
        born_at, stored_at: aware; None is 2026-11-18 11:06:40 UTC.

        Messages are equal only to themselves, as a batch may hold copies. Raises TypeError for a body that cannot be
        published, ValueError for an attempt below 1.
        """
        if attempt < 1:
            raise ValueError(f"attempt={attempt}: the first attempt is 1")
        own = {
            names.KEYS: keys if isinstance(keys, str) else " ".join(keys),
            names.UNIQ_KEY: f"TEST{next(_made):028X}" if message_id is None else message_id,
            names.TAGS: tag,
        }
        said = {name: value for name, value in own.items() if value}
        record = Record(
            topic=topic,
            body=encode_body(body),
            raw_properties=names.encode({**(properties or {}), **said}),
            queue_id=0 if queue is None else queue.queue_id,
            queue_offset=offset,
            born_ms=_ms(born_at),
            born_port=40_000,
            stored_ms=_ms(stored_at),
            store_port=10_911,
            reconsume_times=attempt - 1,
        )
        parts = take_apart(encode_record(record), 0)
        message = Message()
        message._facts, message.body, message.raw_properties = parts.fixed, parts.body, parts.properties
        message.offset, message.size = parts.fixed[5], parts.fixed[0]
        message.queue = MessageQueue(topic, "broker-a", 0) if queue is None else queue
        return message

    @property
    def _fixed(self) -> Fixed:
        facts = self._facts
        if facts is None:
            facts = self._facts = FIXED.unpack(self._head)
        return facts

    @property
    def topic(self) -> str:
        """The subscribed topic; for a retry it is the original topic, not the retry topic."""
        queue = self.queue
        topic = self._topic if queue is None else queue.topic
        if topic.startswith(RETRY_PREFIX):
            return self.properties.get(names.RETRY_TOPIC, topic)
        return topic

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties that the producer and the brokers added to the message."""
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
        """The tag as UTF-8 bytes; None without a tag. Faster than `tag`."""
        return names.tag_of(self.raw_properties)

    @staticmethod
    def raw_tags(messages: Sequence[Message]) -> list[bytes | None]:
        """The tag of each message, as `raw_tag` has it: in one step, for each pull whose tags are mixed."""
        tag_of = names.tag_of
        return [tag_of(message.raw_properties) for message in messages]

    def from_tag_on(self) -> bytes:
        """The end of `raw_properties` that says its tag: other messages that end so have the same tag.

        Empty where they begin with the tag, and without a tag.
        """
        return names.from_tag_on(self.raw_properties)

    @property
    def keys(self) -> list[str]:
        """The keys by which operators find a message."""
        return self.properties.get(names.KEYS, "").split()

    @property
    def message_id(self) -> str:
        """The unique id from the producer; the broker's id when the message has none."""
        raw = names.unique_id_of(self.raw_properties)
        return self.offset_message_id if raw is None else raw.decode("utf-8", "replace")

    @property
    def offset_message_id(self) -> str:
        """The broker's id, which encodes where the record is stored."""
        return _offset_id(self._fixed)

    @property
    def stored_body(self) -> bytes:
        """The body as it is stored, possibly compressed. For copies of the message.

        Raises ProtocolError for a message of a stored batch that cannot be read.
        """
        return self.body

    @property
    def queue_id(self) -> int:
        return self._fixed[3]

    @property
    def physical_offset(self) -> int:
        """Its position in the broker's commit log."""
        return self._fixed[6]

    @property
    def flag(self) -> int:
        """A number that the producer may set freely."""
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
        """Failed attempts so far. The consumer sets it for orderly retries, which happen without a new record."""
        return self._fixed[12]

    @reconsume_times.setter
    def reconsume_times(self, times: int) -> None:
        fixed = self._fixed
        # A new tuple each time: changes are rare, and an extra slot would cost time for every message.
        self._facts = (*fixed[:12], times, fixed[13], fixed[14])

    @property
    def attempt(self) -> int:
        """The number of this attempt; the first is 1."""
        return self.reconsume_times + 1

    def text(self) -> str:
        """The body as text. Raises UnreadableText, a DeadLetter and a UnicodeDecodeError, when it is not UTF-8."""
        try:
            return self.body.decode()
        except UnicodeDecodeError as error:
            raise UnreadableText(self, error) from None

    def json(self) -> Any:
        """The body decoded from JSON. Raises UnreadableJson, a DeadLetter and a msgspec.DecodeError, for any other."""
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadableJson(self, error) from None

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: getattr(self, name) for name in self._kept if hasattr(self, name)}
        return _revive, (type(self), state)

    def __repr__(self) -> str:
        place = f"@{self.queue.broker_name}" if self.queue is not None else ""
        tag = f" tag={self.tag}" if self.tag else ""
        return f"<Message {self.topic}{place}:{self.queue_id} #{self.offset}{tag} attempt={self.attempt}>"


class CompressedMessage(Message):
    """A message whose body is inflated at its first use."""

    __slots__ = ("_body", "_max_bytes", "_packed")
    _kept: ClassVar[tuple[str, ...]] = (*(name for name in Message._kept if name != "body"), "_max_bytes", "_packed")

    _body: bytes
    _max_bytes: int
    _packed: bytes

    @property
    def body(self) -> bytes:  # type: ignore[override]
        """The body as the producer sent it. Raises ProtocolError, at every use, when it cannot be inflated."""
        try:
            return self._body
        except AttributeError:
            self._body = body = inflate(self._packed, self._fixed[7], self._max_bytes)
            return body

    @property
    def stored_body(self) -> bytes:
        return self._packed


class BrokenMessage(Message):
    """A stored batch whose items cannot be decoded. Reading its body raises ProtocolError."""

    __slots__ = ("_problem",)
    _kept: ClassVar[tuple[str, ...]] = (*(name for name in Message._kept if name != "body"), "_problem")

    _problem: str

    @property
    def body(self) -> bytes:  # type: ignore[override]
        raise ProtocolError(self._problem)


Stub = tuple[bytes, Fixed | bytes]
"""What a message's id and its failed attempts are computed from, without its body: it is small, and may be kept."""


def stub_of(message: Message) -> Stub:
    return message.raw_properties, message._facts or message._head


def id_and_failed(stub: Stub) -> tuple[str, int]:
    """The id of the message, and its failed attempts when the stub was made."""
    raw, head = stub
    unique = names.unique_id_of(raw)
    message_id = None if unique is None else unique.decode("utf-8", "replace")
    if isinstance(head, bytes):
        return message_id or _offset_id(FIXED.unpack(head)), FAILED.unpack_from(head)[0]
    return message_id or _offset_id(head), head[12]


def _offset_id(fixed: Fixed) -> str:
    host = fixed[11]
    return offset_id(host[:-4], PORT.unpack(host[-4:])[0], fixed[6])


def _revive(kind: type[Message], state: dict[str, Any]) -> Message:
    message = kind()
    for name, value in state.items():
        setattr(message, name, value)
    return message


def _ms(at: datetime | None) -> int:
    return MADE_MS if at is None else int(at.astimezone(UTC).timestamp() * 1000)


def _datetime(ms: int) -> datetime:
    try:
        return _EPOCH + timedelta(milliseconds=ms)
    except OverflowError:
        raise ProtocolError(f"{ms} ms since 1970 is out of the range of dates") from None


def _host(raw: bytes) -> str:
    port = PORT.unpack(raw[-4:])[0]
    if len(raw) == 8:
        return f"{raw[0]}.{raw[1]}.{raw[2]}.{raw[3]}:{port}"
    return f"[{ipaddress.IPv6Address(raw[:16])}]:{port}"
