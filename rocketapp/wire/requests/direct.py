"""Let one member of a group consume one stored message now.

Code: CONSUME_MESSAGE_DIRECTLY 309, from a client or tool to the broker that stores the message, and from there with its
record as the body to the member, whose answer the broker hands on. Java: ConsumeMessageDirectlyResultRequestHeader,
ConsumeMessageDirectlyResult. The offset in the queue is ours: brokers hand on fields that they do not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from rocketapp.errors import ProtocolError
from rocketapp.wire import fields as read
from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import text_of

SUCCESS, LATER = "CR_SUCCESS", "CR_LATER"
"""Results: the message is done, or is to be consumed again."""

_encode = msgspec.json.Encoder(order="sorted").encode


class DirectRequest(NamedTuple):
    """Asks the member `client_id` to consume a message."""

    group: str
    client_id: str
    offset_message_id: str
    topic: str
    broker_name: str
    queue_offset: int = -1
    """-1: not known, as from Java's tool."""

    def to_fields(self) -> dict[str, str]:
        return {
            "consumerGroup": self.group,
            "clientId": self.client_id,
            "msgId": self.offset_message_id,
            "topic": self.topic,
            "brokerName": self.broker_name,
            "queueOffset": str(self.queue_offset),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, str] | None) -> DirectRequest:
        return cls(
            read.text(fields, "consumerGroup"),
            read.text(fields, "clientId", ""),
            read.text(fields, "msgId", ""),
            read.text(fields, "topic", ""),
            read.text(fields, "brokerName", ""),
            read.int64(fields, "queueOffset", -1),
        )


class DirectResult(NamedTuple):
    """What became of it."""

    result: str
    remark: str = ""

    def encode(self, *, seconds: float = 0.0) -> bytes:
        members = {"autoCommit": True, "consumeResult": self.result, "order": False, "remark": self.remark}
        return _encode({**members, "spentTimeMills": int(seconds * 1000)})

    @classmethod
    def decode(cls, body: bytes) -> DirectResult:
        """Raises ProtocolError."""
        data = lenient_json.loads(body)
        try:
            return cls(text_of(data["consumeResult"]), text_of(data.get("remark") or ""))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"result of a message: {type(error).__name__} {error}") from None
