"""What a broker says of who consumes which queues of a topic, and how.

Codes: QUERY_ASSIGNMENT 400, SET_MESSAGE_REQUEST_MODE 401. Java: QueryAssignmentRequestBody,
QueryAssignmentResponseBody, SetMessageRequestModeRequestBody. Requests have an empty map of fields.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import text_of

PULL, POP = "PULL", "POP"
ALL_QUEUES = -1
"""The queue id that stands for all queues of a broker."""

_encode = msgspec.json.Encoder(order="sorted").encode


class AssignmentQuestion(NamedTuple):
    """Asks which queues one member consumes."""

    topic: str
    group: str
    client_id: str

    def encode(self) -> bytes:
        return _encode(
            {
                "clientId": self.client_id,
                "consumerGroup": self.group,
                "messageModel": "CLUSTERING",
                "strategyName": "AVG",
                "topic": self.topic,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> AssignmentQuestion:
        with lenient_json.reading("assignment question", body) as data:
            return cls(text_of(data["topic"]), text_of(data["consumerGroup"]), text_of(data["clientId"]))


class AssignedQueue(NamedTuple):
    """One queue, and whether it is pulled or its messages are popped."""

    queue: MessageQueue
    mode: str


def decode_assigned(body: bytes) -> list[AssignedQueue] | None:
    """What the broker assigns; None when it cannot tell. Raises ProtocolError."""
    with lenient_json.reading("assigned queues", body) as data:
        entries = data.get("messageQueueAssignments")
        if entries is None:
            return None
        return [AssignedQueue(lenient_json.queue_of(each["messageQueue"]), text_of(each["mode"])) for each in entries]


def encode_mode(topic: str, group: str, mode: str, share_queues: int) -> bytes:
    """`share_queues`: queues of other members that each member pops as well; 0: all members pop all queues."""
    return _encode({"consumerGroup": group, "mode": mode, "popShareQueueNum": share_queues, "topic": topic})
