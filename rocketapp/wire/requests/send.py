"""Send a message, or many in one batch.

Codes: SEND_MESSAGE 10 (long field names), SEND_MESSAGE_V2 310 (one letter each, what
every current client sends), SEND_BATCH_MESSAGE 320 (letters); SEND_REPLY_MESSAGE 324 and its V2 325, which answer a
request, have the same two forms. Java:
SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader.

Every response to a send has fields, even a failed one: the Java client reads
MSG_REGION and TRACE_ON from them without checking that they exist.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Literal, Self

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.wire import frame, header_json
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import FLAG_RESPONSE, JSON, Command
from rocketapp.wire.fields import Fields, Int32, Int64, MissingText, OftenReadHeader, java_names

REGION = "DefaultRegion"
FAILURE_FIELDS: Mapping[str, str] = {"MSG_REGION": REGION, "TRACE_ON": "true"}
"""The fields of the response to a refused send."""


_LETTERS = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}
_long_name = java_names(default_queues="defaultTopicQueueNums", born_ms="bornTimestamp")
_LONG = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_REPLY_MESSAGE})
_SHORT = frozenset({RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})
SENDS, _BATCH = _LONG | _SHORT, int(RequestCode.SEND_BATCH_MESSAGE)


class SendRequest(
    OftenReadHeader,
    frozen=True,
    rename=lambda attribute: _LETTERS[_long_name(attribute)],
):
    """Everything about a message except its body."""

    producer_group: MissingText
    topic: str
    default_topic: str = DEFAULT_TOPIC
    """The topic whose configuration a new topic inherits."""
    default_queues: Int32 = 4
    """Most queues of a topic that this send creates."""
    queue_id: Int32 = 0
    sys_flag: Int32 = 0
    born_ms: Int64 = 0
    flag: Int32 = 0
    properties: str = ""
    """Encoded: see `wire.properties`."""
    reconsume_times: Int32 = 0
    max_reconsume_times: Int32 | None = None
    batch: bool = False
    """Whether the body contains many messages: see `wire.batch`."""
    broker_name: str | None = None

    def to_fields(self) -> dict[str, str]:
        """The one-letter form of SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE."""
        fields = {
            "a": self.producer_group,
            "b": self.topic,
            "c": self.default_topic,
            "d": str(self.default_queues),
            "e": str(self.queue_id),
            "f": str(self.sys_flag),
            "g": str(self.born_ms),
            "h": str(self.flag),
            "i": self.properties,
            "j": str(self.reconsume_times),
            "k": "false",
            "m": "true" if self.batch else "false",
        }
        if self.max_reconsume_times is not None:
            fields["l"] = str(self.max_reconsume_times)
        if self.broker_name is not None:
            fields["n"] = self.broker_name
        return fields

    @classmethod
    def from_command(cls, command: Command) -> SendRequest:
        """Decode a send with any of its codes. Raises ProtocolError."""
        if isinstance(command, _ReadSend) and command.request is not None:
            return command.request
        code, fields = command.code, command.fields
        if code in _LONG:
            _demand(fields, "topic", "queueId")
            fields = {_LETTERS[name]: value for name, value in (fields or {}).items() if name in _LETTERS}
        elif code not in _SHORT:
            raise ProtocolError(f"code {code} is not a send")
        elif not fields or "e" not in fields:  # a missing topic is found below: it has no default
            _demand(fields, "b", "e")
        elif code == _BATCH:
            fields = {**fields, "m": "true"}
        return cls.from_fields(fields)


class _ReadRequest(SendRequest, frozen=True, kw_only=True):
    """A request that is read with its header: nothing else says that the queue is missing."""

    queue_id: Int32


class _ReadSend(header_json.ReadCommand, rename={"request": "extFields", "fields": "read in one step"}):
    """A send that was read with its request in one step, and has no fields."""

    code: Literal[310]
    request: _ReadRequest | None = None
    fields: dict[str, str] | None = None


_read_send, _SEND_V2 = msgspec.json.Decoder(_ReadSend, strict=False).decode, b'{"code":310,'


def decode(serializer: int, header: bytes, body: bytes) -> Command:
    """As `frame.decode`, but who reads the fields of a send has to ask `SendRequest`: it is twice as fast."""
    if serializer == JSON and header.startswith(_SEND_V2):
        try:
            read = _read_send(header)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return frame.decode(serializer, header, body)
        read.body = body
        return read
    return frame.decode(serializer, header, body)


def _demand(fields: Fields, *names: str) -> None:
    for name in names:
        if not fields or name not in fields:
            raise ProtocolError(f"field {name} is missing")


class SendResponse(
    OftenReadHeader,
    frozen=True,
    rename=java_names(message_id="msgId", region="MSG_REGION", trace_on="TRACE_ON"),
):
    """Where the message is stored. Response codes 10, 11 and 12 contain it as well as 0."""

    message_id: str
    """The broker's id; for a batch all ids, joined by commas."""
    queue_id: Int32
    queue_offset: Int64
    """For a batch, the offset of its first message. For a delayed message, the offset in the schedule topic."""
    transaction_id: str | None = None
    """The unique id from the producer."""
    recall_handle: str | None = None
    """What takes a message back that waits for its time: see `wire.requests.recall`."""
    region: str | None = REGION
    """The region that the broker names; None when it names none."""
    trace_on: bool = True
    """Whether the broker wants this message to be traced."""

    @classmethod
    def from_fields(cls, fields: Fields) -> Self:
        if fields and fields.get("TRACE_ON") not in ("true", "false"):
            fields = {**fields, "TRACE_ON": "true"}  # as for Java, every other word is a yes
        found = super().from_fields(fields)
        return found if fields and "MSG_REGION" in fields else msgspec.structs.replace(found, region=None)


_quoted = msgspec.json.Encoder().encode
_LENGTHS = struct.Struct(">ii")
_USUAL = header_json.encode(
    Command(
        0,
        SendResponse("%b", 0, 0, "%b").to_fields() | {"queueId": "%d", "queueOffset": "%d"},
        opaque=-1,
        flag=FLAG_RESPONSE,
    )
)
_USUAL = _USUAL.replace(b"-1", b"%d").replace(b'"transactionId":"%b"', b'"transactionId":%b')
"""The header of a usual answer, for its ids and numbers."""


def usual_answer(message_id: str, queue_id: int, queue_offset: int, unique_id: str, opaque: int) -> bytes:
    """The whole frame of a SendResponse without a recall handle. Every send pays for it."""
    header = _USUAL % (message_id.encode(), queue_id, queue_offset, _quoted(unique_id), opaque)
    size = len(header)
    return _LENGTHS.pack(4 + size, size) + header
