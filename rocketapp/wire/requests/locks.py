"""Queue locks for orderly consumption.

Codes: LOCK_BATCH_MQ 41, UNLOCK_BATCH_MQ 42. Java: LockBatchRequestBody,
UnlockBatchRequestBody, LockBatchResponseBody. Requests have an empty map of fields;
everything is in the body. The response to an unlock has no body.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire import lenient_json
from rocketapp.wire.lenient_json import dump, queue_members, text_of


class LockBody(NamedTuple):
    """The locks of these queues that `client_id` requests for its group, or gives back."""

    group: str
    client_id: str
    queues: list[MessageQueue]

    def encode(self) -> bytes:
        return dump(
            {
                "clientId": self.client_id,
                "consumerGroup": self.group,
                "mqSet": list(map(queue_members, self.queues)),
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
    return dump({"lockOKMQSet": list(map(queue_members, queues))})


def decode_locked(body: bytes) -> set[MessageQueue]:
    """Read the answer to 41; raises ProtocolError."""
    with lenient_json.reading("locked queues", body) as data:
        return set(_queues(data.get("lockOKMQSet")))


def _queues(items: Any) -> list[MessageQueue]:
    return [lenient_json.queue_of(item) for item in items or ()]
