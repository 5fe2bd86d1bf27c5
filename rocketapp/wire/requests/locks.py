"""Queue locks for orderly consumption.

Codes: LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42. Java: LockBatchRequestBody,
UnlockBatchRequestBody, LockBatchResponseBody. Requests have an empty map of fields;
everything is in the body. The response to an unlock has no body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import text_of

_encode = msgspec.json.Encoder(order="sorted").encode


class LockBody(NamedTuple):
    """The locks of these queues that `client_id` requests for its group, or gives back."""

    group: str
    client_id: str
    queues: list[MessageQueue]

    def encode(self) -> bytes:
        return _encode(
            {
                "clientId": self.client_id,
                "consumerGroup": self.group,
                "mqSet": list(map(_members, self.queues)),
                "onlyThisBroker": False,
            }
        )

    @classmethod
    def decode(cls, body: bytes) -> LockBody:
        """Read a lock or unlock request; raises ProtocolError."""
        with lenient_json.reading("lock request", body) as data:
            return cls(text_of(data["consumerGroup"]), text_of(data["clientId"]), _queues(data.get("mqSet")))


def encode_locked(queues: Iterable[MessageQueue]) -> bytes:
    """The answer to 41: the queues whose locks the client holds now."""
    return _encode({"lockOKMQSet": list(map(_members, queues))})


def decode_locked(body: bytes) -> set[MessageQueue]:
    """Read the answer to 41; raises ProtocolError."""
    with lenient_json.reading("locked queues", body) as data:
        return set(_queues(data.get("lockOKMQSet")))


def _members(queue: MessageQueue) -> dict[str, Any]:
    return {"brokerName": queue.broker_name, "queueId": queue.queue_id, "topic": queue.topic}


def _queues(items: Any) -> list[MessageQueue]:
    return [lenient_json.queue_of(item) for item in items or ()]
