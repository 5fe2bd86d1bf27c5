"""What a handler may know beside its message: `Context`.

Made per message, and only for handlers that ask for it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import SendResult
from rocketapp.model.publish_options import PublishOptions
from rocketapp.model.publisher import Publisher
from rocketapp.model.subscription import Subscription
from rocketapp.model.topic import Topic

if TYPE_CHECKING:
    from rocketapp.app.publish.publishing import Publishing
    from rocketapp.wire.record import Message

T = TypeVar("T")
LOGGER = "rocketapp.handlers"
"""Parent of the handlers' loggers: `rocketapp.handlers.<module>:<function>`."""


class Context:
    """The circumstances of one attempt."""

    __slots__ = ("_first", "_handler", "_publisher", "attempt", "deadline", "group", "queue")

    def __init__(
        self, first: Message, attempt: int, subscription: Subscription, deadline: float | None, publisher: Publisher
    ) -> None:
        self._first, self._handler, self._publisher = first, subscription.handler_name, publisher
        self.attempt: int = attempt
        """The first is 1. For a batch: the highest of its messages."""
        self.queue: MessageQueue | None = first.queue
        """Where the message was pulled from; its topic is `%RETRY%group` for an attempt after the first."""
        self.group: str = subscription.group
        self.deadline: float | None = deadline
        """The event loop's time (`loop.time()`) at which `timeout=` ends this attempt, or None."""

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry topic, message id and attempt as fields."""
        fields = {
            "topic": self._first.topic,
            "group": self.group,
            "handler": self._handler,
            "message_id": self._first.message_id,
            "attempt": self.attempt,
        }
        return _MessageLogger(logging.getLogger(f"{LOGGER}.{self._handler}"), fields)

    async def publish(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """Send a message that follows the handled one: see Publisher, and RocketApp.publish."""
        return await self._publisher.publish(topic, body, **options)

    def publish_sync(self, topic: str | Topic[T], body: T, **options: Unpack[PublishOptions]) -> SendResult:
        """`publish` for sync handlers: blocks until the answer is there."""
        return self._publisher.publish_sync(topic, body, **options)

    def __repr__(self) -> str:
        return f"<Context {self._handler} attempt={self.attempt} queue={self.queue}>"


class _MessageLogger(logging.LoggerAdapter[logging.Logger]):
    """Puts the message's fields beside those of the call, where the formatters find them."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        own = dict(kwargs.get("extra") or {})
        own["fields"] = {**(self.extra or {}), **own.get("fields", {})}
        kwargs["extra"] = own
        return msg, kwargs


def publisher_of(subscription: Subscription, publishing: Publishing) -> Callable[[Any], Publisher]:
    """Message (or a list of them) -> what publishes in its handler, specialised once for a subscription."""
    own = publishing.to(subscription.cluster)
    return own.following if subscription.batch is None else lambda _messages: own


def context_of(subscription: Subscription, publisher: Callable[[Any], Publisher]) -> Callable[[Any], Context]:
    """Message (or a list of them) -> Context, specialised once for a subscription."""
    timeout = subscription.timeout

    def one(message: Message) -> Context:
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        return Context(message, message.attempt, subscription, deadline, publisher(message))

    def many(messages: list[Message]) -> Context:
        deadline = None if timeout is None else asyncio.get_running_loop().time() + timeout
        attempt = max(message.attempt for message in messages)
        return Context(messages[0], attempt, subscription, deadline, publisher(messages))

    return one if subscription.batch is None else many
