"""What `app.publisher(topic, Type)` returns: publishes one type of payload to one topic."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar, Unpack

from rocketapp.app.publish.publisher import Publisher
from rocketapp.model.outgoing import SendResult
from rocketapp.model.publish_options import PublishOptions, SendOptions
from rocketapp.model.topic import Topic

T = TypeVar("T")


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
