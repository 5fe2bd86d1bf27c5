"""What a broker says of who consumes which queues of a topic, and how.

Codes: QUERY_ASSIGNMENT 400, SET_MESSAGE_REQUEST_MODE 401, GET_ALL_MESSAGE_REQUEST_MODE 402. Java:
QueryAssignmentRequestBody, QueryAssignmentResponseBody, SetMessageRequestModeRequestBody.
Requests have an empty map of fields.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Self

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire import lenient_json
from rocketapp.wire.fields import Int32, java_names
from rocketapp.wire.lenient_json import JsonObject, dump, queue_members, text_of

PULL, POP = "PULL", "POP"
ALL_QUEUES = -1
"""The queue id that stands for all queues of a broker."""


class AssignmentQuestion(JsonObject, frozen=True, rename=java_names(strategy="strategyName")):
    """Asks which queues one member consumes."""

    topic: str
    group: str
    client_id: str
    strategy: str = "AVG"
    message_model: str = "CLUSTERING"

    @classmethod
    def decode(cls, body: bytes) -> Self:
        with lenient_json.reading("assignment question", body) as data:
            return cls.of({**data, "strategyName": data.get("strategyName") or ""})  # none is not the usual one


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
        return dump({"messageQueueAssignments": None})
    entries = [{"messageQueue": queue_members(queue), "mode": mode} for queue, mode in found]
    return dump({"messageQueueAssignments": entries})


class RequestMode(JsonObject, frozen=True, rename=java_names(share_queues="popShareQueueNum")):
    """How the members of a group are to ask for the messages of a topic."""

    topic: str
    group: str
    mode: str = PULL
    share_queues: Int32 = -1
    """Queues of other members that each member pops as well; 0 or less: all members pop all queues."""

    def __post_init__(self) -> None:
        if self.mode not in (PULL, POP):
            raise ValueError(f"mode {self.mode!r} is neither {PULL} nor {POP}")

    @classmethod
    def decode(cls, body: bytes) -> Self:
        with lenient_json.reading("request mode", body) as data:
            return cls.of(data)
