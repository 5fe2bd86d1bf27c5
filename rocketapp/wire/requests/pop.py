"""Messages that a broker hands out and hides from others for a while, until they are acknowledged.

Codes: POP_MESSAGE 200050, ACK_MESSAGE 200051, CHANGE_MESSAGE_INVISIBLETIME 200053, NOTIFICATION 200054,
BATCH_ACK_MESSAGE 200151.
Java: PopMessageRequestHeader, PopMessageResponseHeader, AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader,
BatchAckMessageRequestBody, ExtraInfoUtil. These codes do not fit into a binary header.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rocketapp.errors import ProtocolError
from rocketapp.model.names import RETRY_PREFIX
from rocketapp.model.pulled import Acks, Handle
from rocketapp.wire import fields as read
from rocketapp.wire import lenient_json
from rocketapp.wire.fields import Header, Int32, java_names
from rocketapp.wire.lenient_json import dump, int32_of, int64_of, text_of

FROM_FIRST, FROM_LAST = 0, 1
"""Where a group without an offset begins: with the oldest message, or with the newest."""
MOST_MESSAGES = 32
"""Messages of one answer: brokers refuse more."""
OF_TOPIC, OF_RETRY, OF_RETRY_V2 = 0, 1, 2
"""Where a message lies: in its topic, or in one of the two retry topics that brokers keep for it."""
ORDERLY = 999
"""In the place of a revive queue: messages that are handed out in order are not in that log."""
_HANDLE_PROPERTY = b"POP_CK\x01"
_MOST_BIT_BYTES = 4096
"""Most bytes of one bit set. What a filter leaves out lies between the messages of an answer."""


def pop_retry_topic(group: str, topic: str, kind: int) -> str:
    """Where a broker puts messages of this topic that were not acknowledged in time; the topic itself for OF_TOPIC."""
    if kind == OF_TOPIC:
        return topic
    return f"{RETRY_PREFIX}{group}{'_' if kind == OF_RETRY else '+'}{topic}"


class PopRequest(
    Header,
    frozen=True,
    rename=java_names(
        max_messages="maxMsgNums",
        invisible_ms="invisibleTime",
        poll_ms="pollTime",
        born_ms="bornTime",
        expression="exp",
        expression_type="expType",
    ),
):
    """Asks for messages of all queues of a topic on one broker, or of one of them."""

    group: str
    topic: str
    queue_id: Int32
    """-1: of all queues."""
    max_messages: Int32
    invisible_ms: int
    """For how long they are hidden from others."""
    poll_ms: int
    """How long the broker may hold the request while there is nothing."""
    born_ms: int = 0
    """When it was sent, by the client's clock; 0: the broker's clock counts."""
    init_mode: Int32 = FROM_FIRST
    expression: str = "*"
    expression_type: str = "TAG"
    order: bool = False
    """Nothing more of a queue while messages of it are hidden; they come again in their order."""
    attempt_id: str | None = None
    """In order: who repeats a request with the same one gets the same messages."""

    @classmethod
    def of_looking(cls, fields: Mapping[str, str] | None) -> PopRequest:
        """A request that hands nothing out: it has some of the fields of a pop. It is never too late."""
        least = {"maxMsgNums": "1", "invisibleTime": "0", "pollTime": "0"}
        return cls.from_fields({**least, **(fields or {}), "bornTime": "0"})


class PopResponse(NamedTuple):
    """Where the messages of an answer lie; one without messages holds the times alone."""

    popped_ms: int
    """When they were handed out, by the broker's clock."""
    invisible_ms: int
    revive_queue: int
    rest: int
    """Messages that are left in the queues."""
    starts: Mapping[tuple[int, int], int] = {}
    """By kind and queue id the offset from which the broker counts them."""
    offsets: Mapping[tuple[int, int], Sequence[int]] = {}
    """By kind and queue id the offsets of the messages."""
    counts: Mapping[int, Mapping[int, int]] | None = None
    """In order: by queue id, how often messages were handed out before. Brokers tell it, rocketapp does not ask."""

    def to_fields(self) -> dict[str, str]:
        fields = {
            "popTime": str(self.popped_ms),
            "invisibleTime": str(self.invisible_ms),
            "reviveQid": str(self.revive_queue),
            "restNum": str(self.rest),
        }
        if self.starts:
            fields["startOffsetInfo"] = ";".join(
                f"{kind} {queue_id} {start}" for (kind, queue_id), start in self.starts.items()
            )
            fields["msgOffsetInfo"] = ";".join(
                f"{kind} {queue_id} {','.join(map(str, found))}" for (kind, queue_id), found in self.offsets.items()
            )
        if self.counts is not None:
            fields["orderCountInfo"] = ";".join(self._told_counts())
        return fields

    def _told_counts(self) -> Iterator[str]:
        for queue_id, counts in (self.counts or {}).items():
            yield from (f"{OF_TOPIC} qo{queue_id}%{offset} {count}" for offset, count in counts.items())
            least = min(counts.get(offset, 0) for offset in self.offsets[OF_TOPIC, queue_id])
            yield f"{OF_TOPIC} {queue_id} {least}"

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> PopResponse:
        starts = _by_queue(read.text(fields, "startOffsetInfo", ""))
        offsets = _by_queue(read.text(fields, "msgOffsetInfo", ""))
        try:
            return cls(
                read.int64(fields, "popTime", 0),
                read.int64(fields, "invisibleTime", 0),
                read.int32(fields, "reviveQid", 0),
                read.int64(fields, "restNum", 0),
                {key: int(text) for key, text in starts.items()},
                {key: [int(offset) for offset in text.split(",")] for key, text in offsets.items()},
            )
        except ValueError:
            raise ProtocolError(f"offsets of popped messages: {starts} {offsets}") from None


def _by_queue(text: str) -> dict[tuple[int, int], str]:
    """`0 1 17;1 0 4` is {(0, 1): "17", (1, 0): "4"}."""
    found = {}
    for entry in filter(None, text.split(";")):
        try:
            kind, queue_id, rest = entry.split(" ")
            found[int(kind), int(queue_id)] = rest
        except ValueError:
            raise ProtocolError(f"offsets of popped messages: {text[:80]!r}") from None
    return found


def encode_handle(handle: Handle) -> str:
    """Its fields with blanks between them (Java: ExtraInfoUtil)."""
    return " ".join(map(str, handle))


def decode_handle(text: str) -> Handle:
    """Read the handle by which a popped message is acknowledged. Raises ProtocolError."""
    parts = text.split(" ")
    try:
        start, popped, invisible, revive, kind, broker_name, queue_id, offset = parts
        return Handle(
            int(start), int(popped), int(invisible), int(revive), int(kind), broker_name, int(queue_id), int(offset)
        )
    except ValueError:
        raise ProtocolError(f"handle of a popped message: {text[:120]!r}") from None


def handle_in(raw_properties: bytes) -> Handle | None:
    """The handle that the broker has written into a message which it handed out before. Raises ProtocolError."""
    at = raw_properties.rfind(_HANDLE_PROPERTY)
    if at < 0 or (at > 0 and raw_properties[at - 1] != 2):
        return None
    start = at + len(_HANDLE_PROPERTY)
    end = raw_properties.find(b"\x02", start)
    text = raw_properties[start:] if end < 0 else raw_properties[start:end]
    return decode_handle(text.decode("utf-8", "replace"))


class AckRequest(NamedTuple):
    """Acknowledges one message, or with `invisible_ms` hides it from now on for so long."""

    group: str
    topic: str
    """Where it lies: `pop_retry_topic`."""
    handle: Handle
    invisible_ms: int | None = None
    suspend: bool = False
    """With `invisible_ms`: that it comes again does not count as an attempt (RocketMQ 5.5; older ones count it)."""

    def to_fields(self) -> dict[str, str]:
        fields = {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": str(self.handle.queue_id),
            "extraInfo": encode_handle(self.handle),
            "offset": str(self.handle.offset),
        }
        if self.invisible_ms is not None:
            fields["invisibleTime"] = str(self.invisible_ms)
            fields["suspend"] = read.boolean_text(self.suspend)
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> AckRequest:
        handle = decode_handle(read.text(fields, "extraInfo"))
        is_change = bool(fields) and "invisibleTime" in (fields or {})
        return cls(
            read.text(fields, "consumerGroup"),
            read.text(fields, "topic"),
            # A handle of several messages is sent with the offset of one.
            handle._replace(offset=read.int64(fields, "offset")),
            read.int64(fields, "invisibleTime") if is_change else None,
            read.boolean(fields, "suspend"),
        )


def renewed(handle: Handle, fields: Mapping[str, str] | None) -> Handle:
    """The handle of a message whose hidden time was changed, from the broker's answer."""
    answer = PopResponse.from_fields(fields)
    return handle._replace(
        start=handle.offset,
        popped_ms=answer.popped_ms,
        invisible_ms=answer.invisible_ms,
        revive_queue=answer.revive_queue,
    )


def encode_acks(group: str, topic: str, broker_name: str, acks: Iterable[Acks]) -> bytes:
    """The body of a batch of acknowledgements. `topic`: as it is subscribed, whatever topic they lie in."""
    entries = [
        {
            "consumerGroup": group,
            "topic": topic,
            "retry": str(handle.kind),
            "startOffset": handle.start,
            "queueId": handle.queue_id,
            "reviveQueueId": handle.revive_queue,
            "popTime": handle.popped_ms,
            "invisibleTime": handle.invisible_ms,
            "bitSet": _bits(offset - handle.start for offset in offsets),
        }
        for handle, offsets in acks
    ]
    return dump({"brokerName": broker_name, "acks": entries})


def _bits(places: Iterable[int]) -> str:
    """Java's BitSet as Base64: the lowest bit first, no zero bytes at the end."""
    bits = sum(1 << place for place in set(places))
    return base64.b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()


_SHORT = {
    "consumerGroup": "c",
    "topic": "t",
    "retry": "r",
    "startOffset": "so",
    "queueId": "q",
    "reviveQueueId": "rq",
    "popTime": "pt",
    "invisibleTime": "it",
    "bitSet": "b",
}
"""What Java's client calls the members; brokers read both."""


def decode_acks(body: bytes) -> list[tuple[str, str, Acks]]:
    """Group, subscribed topic and acknowledged messages of each entry. Raises ProtocolError."""
    with lenient_json.reading("acknowledgements", body) as data:
        broker_name = text_of(data["brokerName"])
        return [_decode_ack(entry, broker_name) for entry in data["acks"] or ()]


def _decode_ack(entry: Mapping[str, Any], broker_name: str) -> tuple[str, str, Acks]:
    found = {name: entry[name] if name in entry else entry[short] for name, short in _SHORT.items()}
    start = int64_of(found["startOffset"])
    try:
        raw = base64.b64decode(text_of(found["bitSet"]))
    except binascii.Error as error:
        raise ValueError(f"bit set: {error}") from None
    if len(raw) > _MOST_BIT_BYTES:
        raise ValueError(f"bit set of {len(raw)} bytes, limit {_MOST_BIT_BYTES}")
    bits, offsets = int.from_bytes(raw, "little"), list[int]()
    if bits.bit_count() > MOST_MESSAGES:
        raise ValueError(f"{bits.bit_count()} messages of one answer, limit {MOST_MESSAGES}")
    while bits:
        offsets.append(start + (bits & -bits).bit_length() - 1)
        bits &= bits - 1
    handle = Handle(
        start,
        int64_of(found["popTime"]),
        int64_of(found["invisibleTime"]),
        int32_of(found["reviveQueueId"]),
        int(text_of(found["retry"])),
        broker_name,
        int32_of(found["queueId"]),
        offsets[0] if offsets else start,
    )
    return text_of(found["consumerGroup"]), text_of(found["topic"]), Acks(handle, offsets)
