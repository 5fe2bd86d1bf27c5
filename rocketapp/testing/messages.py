"""Messages and contexts for tests that call a handler: real ones, decoded from the bytes that a broker would send."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, cast

from rocketapp.app.app import RocketApp
from rocketapp.app.call.context import Context
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.publish.messages import PLAIN
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.payload import CONTENT_TYPE
from rocketapp.model.publisher import Publisher
from rocketapp.model.subscription import Subscription
from rocketapp.testing.virtual_time import EPOCH
from rocketapp.wire import properties as names
from rocketapp.wire.record import Message, Record, decode_records, encode_record

_numbers = itertools.count(1)
"""Numbers the messages that are given no id."""


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
    """A message as a pull brings it.

    body: whatever can be published. attempt: 1 for the first. queue: where it was pulled from; None is queue 0 of
    `topic` on broker-a. message_id: None for one that no other message has. born_at, stored_at: aware; None is the
    second at which virtual time begins. app: encodes and marks the body as this app publishes it, with the codecs of
    its plugins and the version of a type with upcasters; None knows neither.

    Raises TypeError for a body that cannot be published, ValueError for an attempt below 1.
    """
    if attempt < 1:
        raise ValueError(f"make_message(attempt={attempt}): the first attempt is 1")
    own = {
        names.KEYS: keys if isinstance(keys, str) else " ".join(keys),
        names.UNIQ_KEY: f"TEST{next(_numbers):028X}" if message_id is None else message_id,
        names.TAGS: tag,
    }
    encoded, marks = (PLAIN if app is None else declared_of(app).payloads).encode(
        body, (properties or {}).get(CONTENT_TYPE)
    )
    said = {name: value for name, value in own.items() if value}
    record = Record(
        topic=topic,
        body=encoded,
        raw_properties=names.encode({**marks, **(properties or {}), **said}),
        queue_id=0 if queue is None else queue.queue_id,
        queue_offset=offset,
        born_ms=_ms(born_at),
        born_port=40_000,
        stored_ms=_ms(stored_at),
        store_port=10_911,
        reconsume_times=attempt - 1,
    )
    (message,) = decode_records(encode_record(record), queue or MessageQueue(topic, "broker-a", 0))
    return message


def make_context(
    message: Message | None = None,
    *,
    attempt: int | None = None,
    group: str = "test",
    deadline: float | None = None,
    publisher: Publisher | None = None,
) -> Context:
    """The circumstances of one attempt, for a handler that a test calls directly.

    message: the handled one; None makes one. attempt: None is the message's. deadline: the loop's time. publisher:
    what `context.publish` publishes with; without one it raises RuntimeError.
    """
    message = make_message() if message is None else message
    subscription = Subscription(
        topic=message.topic,
        group=group,
        tags=frozenset(),
        expression="*",
        orderly=False,
        batch=None,
        batch_wait=0.1,
        concurrency=1,
        retries=16,
        start="last",
        timeout=None,
        cluster="",
        is_async=True,
        handler_name="test",
        place="",
    )
    return Context(
        message,
        message.attempt if attempt is None else attempt,
        subscription,
        deadline,
        cast(Publisher, _NoPublisher()) if publisher is None else publisher,
    )


class _NoPublisher:
    """Says how to publish in a test."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"{name}: this context publishes nothing: give make_context(publisher=...), or use TestApp")


def _ms(at: datetime | None) -> int:
    if at is None:
        return int(EPOCH * 1000)
    return int(at.astimezone(UTC).timestamp() * 1000)
