"""A received message: a lazy view of its record, and what a handler gets.

Bulk code fills few slots; everything else is computed when it is asked for. Messages
are made by `wire.record`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import RETRY_PREFIX
from rocketapp.wire import properties as names
from rocketapp.wire.compression import inflate
from rocketapp.wire.layout import PORT, Fixed
from rocketapp.wire.message_id import offset_id

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Message:
    """One received message: what a handler gets.

    Lazy: properties are decoded, times and hosts computed when they are asked for.
    """

    __slots__ = ("_fixed", "_properties", "_topic", "body", "offset", "queue", "raw_properties")
    _kept: ClassVar[tuple[str, ...]] = ("_fixed", "_topic", "body", "offset", "queue", "raw_properties")
    """What goes along into another process; some of it may be unset."""

    _fixed: Fixed
    _properties: dict[str, str]
    _topic: str
    """As stored; set when there is no queue to tell it."""
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
        queue = self.queue
        topic = self._topic if queue is None else queue.topic
        if topic.startswith(RETRY_PREFIX):
            return self.properties.get(names.RETRY_TOPIC, topic)
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
        return self._fixed[12]

    @reconsume_times.setter
    def reconsume_times(self, times: int) -> None:
        fixed = self._fixed
        # A new tuple each time: raising it is rare, and a slot for it would cost every message.
        self._fixed = (*fixed[:12], times, fixed[13], fixed[14])

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
