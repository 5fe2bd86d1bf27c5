"""Call a handler as its app would, and get the outcome as a value.

The payload is decoded, arguments are injected, and middlewares, filters and the plugins' wrappers stand around it. No
broker is there: what the handler publishes is collected, and startup functions do not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, overload

from rocketapp.app.app import RocketApp
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.publish.publishing import Publishing
from rocketapp.app.run.assembly import handler_of
from rocketapp.app.settings.settings import Settings
from rocketapp.consumer.handler import Handler
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import Outcome
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.testing.driver import Driver
from rocketapp.testing.messages import make_message
from rocketapp.testing.outcomes import outcomes_of
from rocketapp.testing.records import Done, Published, published_of
from rocketapp.testing.stage import settings_of
from rocketapp.wire.message import Message


@overload
async def call(
    handler: Callable[..., Any],
    item: list[Any],
    *,
    app: RocketApp | None = None,
    topic: str | None = None,
    published: list[Published] | None = None,
) -> list[Done | Outcome]: ...


@overload
async def call(
    handler: Callable[..., Any],
    item: Any,
    *,
    app: RocketApp | None = None,
    topic: str | None = None,
    published: list[Published] | None = None,
) -> Done | Outcome: ...


async def call(
    handler: Callable[..., Any],
    item: Any,
    *,
    app: RocketApp | None = None,
    topic: str | None = None,
    published: list[Published] | None = None,
) -> Any:
    """Call a handler for one message, or with a list for a batch, on the running loop; a sync handler in a thread.

    item: a Message (`make_message`), or a payload, which becomes the body of one; for a batch a list of them.
    app: the app that has the handler; without one it is called as if it were the only handler of an app.
    topic: tells subscriptions apart when the handler has several.
    published: receives what the handler publishes.

    Returns Done, Retry, Skip, DeadLetter or Stop; for a batch a list of them, in its order. An exception is what its
    policy makes of it, Retry without one, with the exception as its `__cause__`. Raises LookupError for a function that
    is not a handler of the app.
    """
    is_batch = isinstance(item, list)
    if app is None:
        app = _app_of(handler, batch=len(item) if isinstance(item, list) else None)
    found = _handler(app, handler, topic, [] if published is None else published)
    subscription = found.subscription
    messages = [_message(one, subscription.topic, subscription.tags) for one in (item if is_batch else [item])]
    if is_batch != (subscription.batch is not None):
        raise LookupError(f"{subscription.handler_name} takes {'one message' if is_batch else 'a list: a batch'}")
    given = messages if is_batch else messages[0]
    try:
        async with asyncio.timeout(subscription.timeout):
            if subscription.is_async:
                result, raised = await found.call(given), False
            else:
                result, raised = await asyncio.to_thread(found.call, given), False
    except Exception as error:
        result, raised = error, True
    outcomes = outcomes_of(result, raised, messages, subscription)
    return outcomes if is_batch else outcomes[0]


@overload
def call_sync(
    handler: Callable[..., Any],
    item: list[Any],
    *,
    app: RocketApp | None = None,
    topic: str | None = None,
    published: list[Published] | None = None,
) -> list[Done | Outcome]: ...


@overload
def call_sync(
    handler: Callable[..., Any],
    item: Any,
    *,
    app: RocketApp | None = None,
    topic: str | None = None,
    published: list[Published] | None = None,
) -> Done | Outcome: ...


def call_sync(
    handler: Callable[..., Any],
    item: Any,
    *,
    app: RocketApp | None = None,
    topic: str | None = None,
    published: list[Published] | None = None,
) -> Any:
    """`call` for tests without a loop: an async handler runs on a loop of its own, in virtual time."""
    driver = Driver()
    try:
        return driver.run(call(handler, item, app=app, topic=topic, published=published))
    finally:
        driver.close()


def _app_of(handler: Callable[..., Any], *, batch: int | None) -> RocketApp:
    app = RocketApp("test")
    if batch is None:
        app.subscribe("test")(handler)
    else:
        app.subscribe("test", batch=max(batch, 1))(handler)
    return app


def _handler(app: RocketApp, function: Callable[..., Any], topic: str | None, published: list[Published]) -> Handler:
    settings: Settings = settings_of(app, {}, None)
    declared = declared_of(app)
    plans = declared.registry.plans(settings.app.group or app.name, settings.consumer, version=0)
    bound = [
        one
        for plan in plans
        for topic_plan in plan.topics
        for one in topic_plan.bound
        if one.binding.function is function and topic in (None, one.subscription.topic)
    ]
    if len(bound) != 1:
        known = ", ".join(one.subscription.topic for one in bound)
        problem = f"subscribes {known}: choose one with topic=" if bound else f"is not a handler of {app!r}"
        raise LookupError(f"{getattr(function, '__qualname__', function)} {problem}")
    collecting = _Collecting(asyncio.get_running_loop(), published)
    return handler_of(bound[0], declared.plugins, Publishing(lambda: collecting))


def _message(item: Any, topic: str, tags: frozenset[str]) -> Message:
    if isinstance(item, Message):
        return item
    return make_message(item, topic=topic, tag=min(tags, default=None))


class _Collecting:
    """Stands for a running app, as far as publishing needs one, and for its producers."""

    send_timeout = 3.0

    def __init__(self, loop: asyncio.AbstractEventLoop, published: list[Published]) -> None:
        self.loop, self._published = loop, published
        self._cluster = ""

    def sender(self, cluster: str) -> _Collecting:
        self._cluster = cluster
        return self

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult:
        self._published.append(published_of(message, self._cluster, self.loop.time()))
        number = len(self._published)
        return SendResult(f"TEST{number:028X}", "", MessageQueue(message.topic, "broker-a", 0), number - 1)

    async def send_many(self, messages: Sequence[Outgoing]) -> list[SendResult]:
        return [await self.send(message) for message in messages]

    async def send_one_way(self, message: Outgoing) -> None:
        await self.send(message)
