"""What publishes messages: a `Publisher`, which a handler may ask for, and `app.publisher(topic, Type)`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar, Unpack

from rocketapp.model.outgoing import SendResult
from rocketapp.model.publish_options import PublishOptions, SendOptions
from rocketapp.model.topic import Topic
from rocketapp.wire.record import Message

T = TypeVar("T")


class Publisher(Protocol):
    """Publishes, as `RocketApp` does. In a handler the messages follow the handled one.

    Following: they go to the handled message's cluster unless `cluster=` names another, and carry
    its correlation id (property `rocketapp.correlation_id`; the first message's id is its own)
    unless `properties=` has one. A batch has no single message to follow: it carries none.
    """

    async def publish(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """Send one message and say where it is stored. Raises SendRefused or SendUnknown: see RocketApp.publish."""
        ...

    async def publish_many(
        self, topic: str | Topic[T], items: Iterable[T], **options: Unpack[SendOptions]
    ) -> list[SendResult]:
        """Send one message for each body; results in the same order."""
        ...

    async def publish_one_way(self, topic: str | Topic[T], body: T, **options: Unpack[SendOptions]) -> None:
        """Send without waiting for an answer."""
        ...

    def publish_sync(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """`publish` for sync handlers: blocks until the answer is there."""
        ...

    async def request(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> Message:
        """Send one message and wait for what its handler answers. Raises NoReply: see RocketApp.request."""
        ...

    def request_sync(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> Message:
        """`request` for sync handlers: blocks until the answer is there."""
        ...


class TopicPublisher(Generic[T]):
    """Publishes payloads of one type to one topic; the keywords are those of RocketApp.publish."""

    __slots__ = ("_publisher", "topic")

    def __init__(self, publisher: Publisher, topic: Topic[T]) -> None:
        self._publisher = publisher
        self.topic: Topic[T] = topic

    def __repr__(self) -> str:
        return f"<TopicPublisher of {self.topic}>"

    async def publish(self, payload: T, **options: Unpack[PublishOptions]) -> SendResult:
        """Send one payload and say where it is stored. Raises SendRefused, SendUnknown; TypeError for another type."""
        return await self._publisher.publish(self.topic, payload, **options)

    async def publish_many(self, payloads: Iterable[T], **options: Unpack[SendOptions]) -> list[SendResult]:
        """Send each payload; results in the same order."""
        return await self._publisher.publish_many(self.topic, payloads, **options)

    async def publish_one_way(self, payload: T, **options: Unpack[SendOptions]) -> None:
        """Send without waiting for an answer."""
        await self._publisher.publish_one_way(self.topic, payload, **options)

    def publish_sync(self, payload: T, **options: Unpack[PublishOptions]) -> SendResult:
        """`publish` for sync handlers and other threads: blocks until the answer is there."""
        return self._publisher.publish_sync(self.topic, payload, **options)
