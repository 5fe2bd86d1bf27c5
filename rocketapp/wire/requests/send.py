"""Send a message, or many in one batch.

Codes: SEND_MESSAGE 10 (long field names), SEND_MESSAGE_V2 310 (one letter each, what
every current client sends), SEND_BATCH_MESSAGE 320 (letters); SEND_REPLY_MESSAGE 324 and its V2 325, which answer a
request, have the same two forms. Java:
SendMessageRequestHeader, SendMessageRequestHeaderV2, SendMessageResponseHeader.

Every response to a send has fields, even a failed one: the Java client reads
MSG_REGION and TRACE_ON from them without checking that they exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rocketapp.errors import ProtocolError
from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.wire import fields as read
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command

REGION = "DefaultRegion"
FAILURE_FIELDS: Mapping[str, str] = {"MSG_REGION": REGION, "TRACE_ON": "true"}
"""The fields of the response to a refused send."""


class _Names(NamedTuple):
    """The names of the fields of a send in one of its two forms."""

    producer_group: str
    topic: str
    default_topic: str
    default_queues: str
    queue_id: str
    sys_flag: str
    born_ms: str
    flag: str
    properties: str
    reconsume_times: str
    unit_mode: str
    max_reconsume_times: str
    batch: str
    broker_name: str


_SHORT = _Names(*"abcdefghijklmn")
_LONG = _Names(
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
    "bname",
)
_NAMES = {
    RequestCode.SEND_MESSAGE: _LONG,
    RequestCode.SEND_MESSAGE_V2: _SHORT,
    RequestCode.SEND_BATCH_MESSAGE: _SHORT,
    RequestCode.SEND_REPLY_MESSAGE: _LONG,
    RequestCode.SEND_REPLY_MESSAGE_V2: _SHORT,
}


class SendRequest(NamedTuple):
    """Everything about a message except its body."""

    producer_group: str
    topic: str
    default_topic: str = DEFAULT_TOPIC
    """The topic whose configuration a new topic inherits."""
    default_queues: int = 4
    """Most queues of a topic that this send creates."""
    queue_id: int = 0
    sys_flag: int = 0
    born_ms: int = 0
    flag: int = 0
    properties: str = ""
    """Encoded: see `wire.properties`."""
    reconsume_times: int = 0
    max_reconsume_times: int | None = None
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
        names = _NAMES.get(command.code)  # type: ignore[call-overload]
        if names is None:
            raise ProtocolError(f"code {command.code} is not a send")
        request = cls._from_fields(command.fields, names)
        return request._replace(batch=True) if command.code == RequestCode.SEND_BATCH_MESSAGE else request

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> SendRequest:
        """Decode the one-letter form."""
        return cls._from_fields(fields, _SHORT)

    @classmethod
    def _from_fields(cls, fields: Mapping[str, str] | None, names: _Names) -> SendRequest:
        return cls(
            # Java brokers accept a send without a producer group.
            producer_group=read.text(fields, names.producer_group, ""),
            topic=read.text(fields, names.topic),
            default_topic=read.text(fields, names.default_topic, DEFAULT_TOPIC),
            default_queues=read.int32(fields, names.default_queues, 4),
            queue_id=read.int32(fields, names.queue_id),
            sys_flag=read.int32(fields, names.sys_flag, 0),
            born_ms=read.int64(fields, names.born_ms, 0),
            flag=read.int32(fields, names.flag, 0),
            properties=read.text(fields, names.properties, ""),
            reconsume_times=read.int32(fields, names.reconsume_times, 0),
            max_reconsume_times=read.optional_int32(fields, names.max_reconsume_times),
            batch=read.boolean(fields, names.batch),
            broker_name=read.optional_text(fields, names.broker_name),
        )


class SendResponse(NamedTuple):
    """Where the message is stored. Response codes 10, 11 and 12 contain it as well as 0."""

    message_id: str
    """The broker's id; for a batch all ids, joined by commas."""
    queue_id: int
    queue_offset: int
    """For a batch, the offset of its first message. For a delayed message, the offset in the schedule topic."""
    transaction_id: str | None = None
    """The unique id from the producer."""
    recall_handle: str | None = None
    """What takes a message back that waits for its time: see `wire.requests.recall`."""
    region: str | None = REGION
    """The region that the broker names; None when it names none."""
    trace_on: bool = True
    """Whether the broker wants this message to be traced."""

    def to_fields(self) -> dict[str, str]:
        fields = {
            "msgId": self.message_id,
            "queueId": str(self.queue_id),
            "queueOffset": str(self.queue_offset),
            "TRACE_ON": "true" if self.trace_on else "false",
        }
        if self.region is not None:
            fields["MSG_REGION"] = self.region
        if self.transaction_id is not None:
            fields["transactionId"] = self.transaction_id
        if self.recall_handle is not None:
            fields["recallHandle"] = self.recall_handle
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> SendResponse:
        return cls(
            read.text(fields, "msgId"),
            read.int32(fields, "queueId"),
            read.int64(fields, "queueOffset"),
            read.optional_text(fields, "transactionId"),
            read.optional_text(fields, "recallHandle"),
            read.optional_text(fields, "MSG_REGION"),
            read.text(fields, "TRACE_ON", "true") != "false",
        )
