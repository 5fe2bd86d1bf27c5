"""Take back a message that waits for its time.

Code: RECALL_MESSAGE 370. The broker gave the handle when it stored the message; it names the broker, so only that one
can take the message back. Java: RecallMessageRequestHeader, RecallMessageHandle.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

from rocketapp.errors import ProtocolError
from rocketapp.wire.fields import Header, java_names

_KIND = "v1"


class RecallRequest(Header, frozen=True, rename=java_names(handle="recallHandle", group="producerGroup")):
    """`handle`: as the broker gave it."""

    topic: str
    handle: str
    group: str | None = None
    """The producer group that asks."""
    broker_name: str | None = None


class RecallHandle(NamedTuple):
    """What a handle says. In text it is URL-safe Base64 of the parts with blanks between them."""

    topic: str
    broker_name: str
    due_ms: int
    """When the message is delivered, as the broker counts."""
    message_id: str
    """The producer's unique id."""

    def encode(self) -> str:
        parts = (_KIND, self.topic, self.broker_name, str(self.due_ms), self.message_id)
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()

    @classmethod
    def decode(cls, handle: str) -> RecallHandle:
        """Raises ProtocolError for another text, and for a handle of a kind that is not known."""
        try:
            kind, topic, broker_name, due_ms, message_id = base64.urlsafe_b64decode(handle).decode().split(" ")
            if kind != _KIND:
                raise ProtocolError(f"a recall handle of kind {kind[:20]!r}, only {_KIND} is known")
            return cls(topic, broker_name, int(due_ms), message_id)
        except (binascii.Error, ValueError):
            raise ProtocolError(f"{handle[:40]!r} is not a recall handle") from None
