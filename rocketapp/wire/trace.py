"""Records of message trace: who sent a message, who handled it, and how that ended. Apache's tool prints no others.

A trace message holds many records as text: fields with 0x01 between them, 0x02 behind each record. Its keys are the
ids and the keys of the messages that its records are about, which is how operators find it (`queryMsgTraceById`).
An absent text is written as `null`, as Java does. Java: TraceDataEncoder, TraceContext, TraceBean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from rocketapp.wire import properties as names
from rocketapp.wire.message import Stub, id_and_failed

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
"""Where traces go unless the settings say otherwise (Java: TopicValidator.RMQ_SYS_TRACE_TOPIC)."""
REGION = "DefaultRegion"
"""The region of records about messages whose own is not known (Java: MixAll.DEFAULT_TRACE_REGION_ID)."""
MOST_BYTES = 128_000
"""Bytes of records in one trace message (Java: AsyncTraceDispatcher.maxMsgSize)."""
MOST_KEY_BYTES = 30_000
"""Bytes of its keys: all properties of a message together have at most 32,767."""

_FIELD, _RECORD = "\x01", "\x02"
_CLEAN = str.maketrans({_FIELD: " ", _RECORD: " "})
_OFF, _NAMED, _USUAL = b"TRACE_ON\x01false", b"MSG_REGION\x01", f"MSG_REGION\x01{REGION}\x02".encode()


class MessageKind(IntEnum):
    """Java: MessageType, by ordinal."""

    NORMAL = 0
    HALF = 1
    DELAYED = 3


class CallCode(IntEnum):
    """How a call of a handler ended. Java: ConsumeReturnType, by ordinal."""

    SUCCESS = 0
    TIMEOUT = 1
    EXCEPTION = 2
    NULL = 3
    FAILED = 4


class PubRecord(NamedTuple):
    """A message was sent, and a broker answered."""

    at_ms: int
    region: str
    group: str
    topic: str
    message_id: str
    tag: str | None
    keys: str | None
    store_host: str
    body_bytes: int
    cost_ms: int
    kind: int
    offset_message_id: str
    success: bool

    def encode(self) -> str:
        at_ms, region, group, topic, message_id, tag, keys, host, body_bytes, cost_ms, kind, offset_id, success = self
        tag, keys = "null" if tag is None else tag, "null" if keys is None else keys
        done = "true" if success else "false"
        line = (
            f"Pub\x01{at_ms}\x01{region}\x01{group}\x01{topic}\x01{message_id}\x01{tag}\x01{keys}\x01{host}\x01"
            f"{body_bytes}\x01{cost_ms}\x01{int(kind)}\x01{offset_id}\x01{done}\x02"
        )
        is_whole = line.count(_FIELD) == len(self) and line.count(_RECORD) == 1
        # A key may hold these signs: the record has to stay readable.
        return line if is_whole else PubRecord(*map(_clean, self)).encode()


Line = tuple[str, str]
"""A record as text; and the id of the message that it is about with that one's keys, with blanks between them."""


def line_of(record: PubRecord) -> Line:
    """The line of a sent message. A handled one has `begun_line` and `ended_line`."""
    return record.encode(), _words(record.message_id, record.keys)


Handled = tuple[str, str, int, str | None, str]
"""What the records of a handled message say of it: id, region, failed attempts, keys, and the words of its lines."""


def handled(stub: Stub) -> Handled | None:
    """None for a message whose broker wants no trace of it."""
    raw, _ = stub
    if _OFF in raw:
        return None
    message_id, failed = id_and_failed(stub)
    found = names.keys_of(raw)
    keys = None if found is None else found.decode("utf-8", "replace")
    is_usual = _USUAL in raw or _NAMED not in raw  # messages of a batch do not name it
    region = REGION if is_usual else names.decode(raw).get(names.MSG_REGION, REGION)
    if _FIELD in message_id or _FIELD in region or (keys is not None and _FIELD in keys):
        message_id, region = message_id.translate(_CLEAN), region.translate(_CLEAN)
        keys = None if keys is None else keys.translate(_CLEAN)
    return message_id, region, failed, keys, _words(message_id, keys)


def begun_line(about: Handled, at_ms: int, group: str, request_id: str) -> Line:
    """SubBefore of a message."""
    message_id, region, failed, keys, words = about
    keys = "null" if keys is None else keys
    start = f"SubBefore\x01{at_ms}\x01{region}\x01{group}\x01{request_id}"
    return f"{start}\x01{message_id}\x01{failed}\x01{keys}\x02", words


def ended_line(about: Handled, at_ms: int, group: str, request_id: str, *, cost_ms: int, code: CallCode) -> Line:
    """SubAfter of a message."""
    message_id, _, _, keys, words = about
    done, keys = "false" if code else "true", "null" if keys is None else keys
    start = f"SubAfter\x01{request_id}\x01{message_id}\x01{cost_ms}\x01{done}"
    return f"{start}\x01{keys}\x01{int(code)}\x01{at_ms}\x01{group}\x02", words


def pack(lines: Iterable[Line], *, most_bytes: int = MOST_BYTES) -> Iterator[tuple[bytes, list[str]]]:
    """Body and keys of as few trace messages as the lines fit into, in their order.

    A line that alone is larger than `most_bytes` gets a message for itself.
    """
    texts: list[str] = []
    keys: dict[str, None] = {}
    size = key_bytes = 0
    for text, words in lines:
        length = len(text) if text.isascii() else _bytes_of(text)
        longer = 0 if words in keys else _bytes_of(words) + 1
        if texts and (size + length > most_bytes or key_bytes + longer > MOST_KEY_BYTES):
            yield _encoded("".join(texts)), _keys_of(keys)
            texts, keys, size, key_bytes, longer = [], {}, 0, 0, _bytes_of(words) + 1
        keys[words] = None
        texts.append(text)
        size += length
        key_bytes += longer
    if texts:
        yield _encoded("".join(texts)), _keys_of(keys)


def _words(message_id: str, keys: str | None) -> str:
    return f"{message_id} {keys}" if keys else message_id


def _keys_of(words: Iterable[str]) -> list[str]:
    """Each once. An id of another client may hold blanks, which no key can."""
    return [key for key in dict.fromkeys(" ".join(words).split()) if len(key) < MOST_KEY_BYTES]


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


def _bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(_encoded(text))


def _clean(value: Any) -> Any:
    return value.translate(_CLEAN) if isinstance(value, str) else value
