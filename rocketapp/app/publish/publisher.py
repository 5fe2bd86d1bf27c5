"""What publishes messages: an app, and what a handler gets that asks for a `Publisher`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar, Unpack

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
