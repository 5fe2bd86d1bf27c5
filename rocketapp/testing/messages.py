"""Messages and contexts for tests that call a handler: real ones, decoded from the bytes that a broker would send."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from rocketapp.app.app import RocketApp
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.publish.messages import PLAIN
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.payload import CONTENT_TYPE
from rocketapp.wire.message import Message


def make_message(
    body: Any = b"",
    *,
    topic: str = "test",
    tag: str | None = None,
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
    attempt: int = 1,
    queue: MessageQueue | None = None,
    offset: int = 0,
    message_id: str | None = None,
    born_at: datetime | None = None,
    stored_at: datetime | None = None,
    app: RocketApp | None = None,
) -> Message:
    """`Message.make`, with the codecs of an app: a message as a pull brings it.

    body: whatever can be published. attempt: 1 for the first. queue: where it was pulled from; None is queue 0 of
    `topic` on broker-a. message_id: None for one that no other message has. born_at, stored_at: aware; None is the
    second at which virtual time begins. app: encodes and marks the body as this app publishes it, with the codecs of
    its plugins and the version of a type with upcasters; None knows neither.

    Raises TypeError for a body that cannot be published, ValueError for an attempt below 1.
    """
    payloads = PLAIN if app is None else declared_of(app).payloads
    encoded, marks = payloads.encode(body, (properties or {}).get(CONTENT_TYPE))
    return Message.make(
        encoded,
        topic=topic,
        tag=tag,
        keys=keys,
        properties={**marks, **(properties or {})},
        attempt=attempt,
        queue=queue,
        offset=offset,
        message_id=message_id,
        born_at=born_at,
        stored_at=stored_at,
    )
