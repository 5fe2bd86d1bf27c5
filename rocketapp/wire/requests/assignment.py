"""What a broker says of who consumes which queues of a topic, and how.

Codes: QUERY_ASSIGNMENT 400, SET_MESSAGE_REQUEST_MODE 401, GET_ALL_MESSAGE_REQUEST_MODE 402. Java:
QueryAssignmentRequestBody, QueryAssignmentResponseBody, SetMessageRequestModeRequestBody.
Requests have an empty map of fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import int32_of, text_of

PULL, POP = "PULL", "POP"
ALL_QUEUES = -1
"""The queue id that stands for all queues of a broker."""

_encode = msgspec.json.Encoder(order="sorted").encode


class AssignmentQuestion(NamedTuple):
    """Asks which queues one member consumes."""

    topic: str
    group: str
    client_id: str
    strategy: str = "AVG"
    message_model: str = "CLUSTERING"

    def encode(self) -> bytes:
        return _encode(
            {
                "clientId": self.client_id,
                "consumerGroup": self.group,
                "messageModel": self.message_model,
                "strategyName": self.strategy,
                "topic": self.topic,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> AssignmentQuestion:
        with lenient_json.reading("assignment question", body) as data:
            return cls(
                text_of(data["topic"]),
                text_of(data["consumerGroup"]),
                text_of(data["clientId"]),
                text_of(data.get("strategyName") or ""),
                text_of(data.get("messageModel") or "CLUSTERING"),
            )


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


def encode_assigned(found: Iterable[AssignedQueue] | None) -> bytes:
    """None: the broker cannot tell."""
    if found is None:
        return _encode({"messageQueueAssignments": None})
    entries = [
        {
            "messageQueue": {
                "brokerName": queue.broker_name,
                "queueId": queue.queue_id,
                "topic": queue.topic,
            },
            "mode": mode,
        }
        for queue, mode in found
    ]
    return _encode({"messageQueueAssignments": entries})


class RequestMode(NamedTuple):
    """How the members of a group are to ask for the messages of a topic."""

    topic: str
    group: str
    mode: str = PULL
    share_queues: int = -1
    """Queues of other members that each member pops as well; 0 or less: all members pop all queues."""

    def to_json(self) -> dict[str, Any]:
        """The members that Java writes, on the wire and in messageRequestMode.json."""
        return {
            "consumerGroup": self.group,
            "mode": self.mode,
            "popShareQueueNum": self.share_queues,
            "topic": self.topic,
        }

    @classmethod
    def from_json(cls, data: Any) -> RequestMode:
        """From decoded members. Raises KeyError, TypeError or ValueError for others."""
        mode = text_of(data["mode"])
        if mode not in (PULL, POP):
            raise ValueError(f"mode {mode!r} is neither {PULL} nor {POP}")
        return cls(text_of(data["topic"]), text_of(data["consumerGroup"]), mode, int32_of(data["popShareQueueNum"]))

    def encode(self) -> bytes:
        return _encode(self.to_json())

    @classmethod
    def decode(cls, body: bytes) -> RequestMode:
        with lenient_json.reading("request mode", body) as data:
            return cls.from_json(data)
