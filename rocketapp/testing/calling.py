"""Call a handler as its app would, and get the outcome as a value.

The payload is decoded, arguments are injected, and middlewares, filters and the plugins' wrappers stand around it. No
broker is there: what the handler publishes is collected. Plugins are started and stopped around the call; startup
functions of the app do not run.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypedDict, Unpack, overload

from rocketapp.app.app import RocketApp
from rocketapp.app.declare.changes import TopicChange
from rocketapp.app.declare.declaration import Declaration
from rocketapp.app.declare.phases import begin, declared_of, end, handlers_of, is_running, publishing_of, standing_in
from rocketapp.app.publishing import PLAIN, check_names, through
from rocketapp.app.run.surface import AppSurface
from rocketapp.app.run.wiring import handler_of, parts_of, resources
from rocketapp.app.settings import Settings
from rocketapp.app.user_code import UserCode
from rocketapp.clock import Clock
from rocketapp.errors import SetupError
from rocketapp.hooks.hook_types import PublishCall
from rocketapp.model.current_call import CURRENT_CALL
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import DeadLetter, Outcome, Pause, Retry, Skip
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.model.subscription import Subscription
from rocketapp.model.topic import CONTENT_TYPE
from rocketapp.testing.driver import Driver
from rocketapp.testing.records import Done, Published, outcomes_of, published_of
from rocketapp.testing.stage import settings_of
from rocketapp.testing.virtual_time import EPOCH, VirtualClock
from rocketapp.wire.message import Message, MessageFacts
from rocketapp.wire.requests.replies import reply_to


def make_message(body: Any = b"", *, app: RocketApp | None = None, **facts: Unpack[MessageFacts]) -> Message:
    """`Message.make`, with the codecs of an app: a message as a pull brings it.

    body: whatever can be published. topic: "test" if none is given. tag, keys, properties: as for `publish`. attempt: 1
    for the first. queue, offset: where it was pulled from; None is queue 0 of `topic` on broker-a. message_id: None for
    one that no other message has. born_at, stored_at: aware; None is the second at which virtual time begins. app:
    encodes and marks the body as this app publishes it, with the codecs of its plugins and the version of a type with
    upcasters; None knows neither.

    Raises TypeError for a body that cannot be published, ValueError for an attempt below 1.
    """
    check_names("make_message", facts, MessageFacts)
    payloads, properties = PLAIN if app is None else declared_of(app).payloads, facts.get("properties") or {}
    encoded, marks = payloads.encode(body, properties.get(CONTENT_TYPE))
    facts["properties"] = {**marks, **properties}
    return Message.make(encoded, **facts)


Result = Done | Retry | Skip | DeadLetter | Pause
"""What became of one message."""


class CallOptions(TypedDict, total=False):
    """What `call` and `call_sync` take beside the handler and its message."""

    app: RocketApp | None
    """The app that has the handler; without one it is called as if it were the only handler of an app."""
    topic: str | None
    """Tells subscriptions apart when the handler has several."""
    group: str | None
    """The same, for several of one topic."""
    published: list[Published] | None
    """Receives what the handler publishes."""
    settings: Mapping[str, Mapping[str, Any]] | None
    """Options by table, as those of `TestApp`. An app that runs has its own."""


@overload
async def call(handler: Callable[..., Any], item: list[Any], **options: Unpack[CallOptions]) -> list[Result]: ...


@overload
async def call(handler: Callable[..., Any], item: Any, **options: Unpack[CallOptions]) -> Result: ...


async def call(handler: Callable[..., Any], item: Any, **options: Unpack[CallOptions]) -> Any:
    """Call a handler for one message, or with a list for a batch, on the running loop; a sync handler in a thread.

    item: a Message (`make_message`), or a payload, which becomes the body of one, encoded as the app publishes it; for
    a batch a list of them.
    app: the app that has the handler; without one it is called as if it were the only handler of an app.
    topic, group: tell subscriptions apart when the handler has several.
    published: receives what the handler publishes.
    settings: options by table, as those of `TestApp`; RuntimeError when the app runs with others.

    Returns Done, Retry, Skip, DeadLetter or Pause; for a batch a list of them, in its order. An exception is what its
    policy makes of it, Retry without one, with the exception as its `__cause__`. Raises LookupError for a function that
    is not a handler of the app, and what plugins raise when they start.
    """
    check_names("call", options, CallOptions)
    is_batch = isinstance(item, list)
    app = options.get("app")
    if app is None:
        app = _app_of(handler, batch=len(item) if is_batch else None)
    given, declared = options.get("settings") or {}, declared_of(app)
    settings, loop = settings_of(app, given, None), asyncio.get_running_loop()
    if given and declared.settings_in_use not in (None, settings):
        raise RuntimeError(f"call(settings={given!r}): {app.name} runs with other settings")
    async with prepared(app, settings, VirtualClock(loop, EPOCH - loop.time())) as handlers:
        declaration = _declared_handler(app, handler, options, handlers)
        subscription = declaration.subscription
        if declaration.is_polled:
            raise LookupError(f"{subscription.handler_name} pulls its messages, and is called with none: use TestApp")
        if is_batch != (subscription.batch is not None):
            raise LookupError(f"{subscription.handler_name} takes {'one message' if is_batch else 'a list: a batch'}")
        messages = [_message(one, subscription, app) for one in (item if is_batch else [item])]
        published = options.get("published")
        outcomes = await tried(app, declaration, messages, [] if published is None else published)
    return outcomes if is_batch else outcomes[0]


async def tried(
    app: RocketApp, declaration: Declaration, messages: list[Message], published: list[Published]
) -> list[Done | Outcome]:
    """The outcome of each message after one call of a handler that is `prepared`; `published` gets what it publishes.

    A batch handler is called with all of them, any other with the only one.
    """
    handler, subscription = (
        handler_of(declaration, declared_of(app).plugins, publishing_of(app)),
        declaration.subscription,
    )
    given: Any = messages if subscription.batch is not None else messages[0]
    before = CURRENT_CALL.set(lambda: (subscription, given))
    try:
        with standing_in(app, _Unconnected(app, published)):
            if subscription.is_async:
                result, raised = await handler.call(given), False
            else:
                result, raised = await asyncio.to_thread(handler.call, given), False
    except Exception as error:
        result, raised = error, True
    finally:
        CURRENT_CALL.reset(before)
    return outcomes_of(result, raised, messages, subscription)


@overload
def call_sync(handler: Callable[..., Any], item: list[Any], **options: Unpack[CallOptions]) -> list[Result]: ...


@overload
def call_sync(handler: Callable[..., Any], item: Any, **options: Unpack[CallOptions]) -> Result: ...


def call_sync(handler: Callable[..., Any], item: Any, **options: Unpack[CallOptions]) -> Any:
    """`call` for tests without a loop: an async handler runs on a loop of its own, in virtual time."""
    driver = Driver()
    try:
        return driver.run(call(handler, item, **options))
    finally:
        driver.close()


def _app_of(handler: Callable[..., Any], *, batch: int | None) -> RocketApp:
    app = RocketApp("test")
    if batch is None:
        app.subscribe("test")(handler)
    else:
        app.subscribe("test", batch=max(batch, 1))(handler)
    return app


def _declared_handler(
    app: RocketApp, function: Callable[..., Any], chosen: CallOptions, handlers: Sequence[Declaration]
) -> Declaration:
    topic, group = chosen.get("topic"), chosen.get("group")
    # Each look at a method makes another object of it.
    found = [
        one
        for one in handlers
        if one.function == function
        and topic in (None, one.subscription.topic)
        and group in (None, one.subscription.group)
    ]
    # In several clusters it is the same handler, and here none of them is connected.
    places = [(one.subscription.topic, one.subscription.group, one.subscription.tags) for one in found]
    if len(set(places)) != 1:
        known = ", ".join(f"{topic} in group {group}" for topic, group, _ in places)
        problem = f"subscribes {known}: choose one with topic= and group=" if found else f"is not a handler of {app!r}"
        raise LookupError(f"{getattr(function, '__qualname__', function)} {problem}")
    return found[0]


def _message(item: Any, subscription: Subscription, app: RocketApp) -> Message:
    if isinstance(item, Message):
        return item
    return make_message(item, topic=subscription.topic, tag=min(subscription.tags, default=None), app=app)


@dataclass(slots=True)
class _Started:
    """The plugins of one app, started once for all concurrent calls."""

    calls: int = 0
    code: UserCode | None = None


@asynccontextmanager
async def prepared(
    app: RocketApp, settings: Settings, clock: Clock, published: list[Published] | None = None
) -> AsyncIterator[list[Declaration]]:
    """Within: the plugins of the app know these settings and are started. Gives its handlers.

    `published`: the whole app is, with its resources and startup functions; gets what these, and threads of the app,
    publish. `clock`: unless its container has one. Plugins of an app that runs, under TestApp for example, are started
    already. Raises what plugins, and functions, raise.
    """
    declared, handlers = declared_of(app), handlers_of(app, settings)
    if is_running(app):
        yield handlers
        return
    is_whole, running = published is not None, _Unconnected(app, [] if published is None else published)
    started, container = declared.kept(_Started), declared.container if is_whole else None
    if is_whole:
        begin(app, running, settings)  # also for threads that do not know what they belong to
    started.calls += 1
    with standing_in(app, running):  # what plugins publish is nobody's
        try:
            if started.code is None:
                # Observers are asked here, so that plugins see the settings before they wrap a handler.
                own, _ = parts_of(declared.container, clock)
                started.code = code = AppSurface(app, settings, clock=own).user_code()
                declared.settings_in_use = settings
                await resources(container, "init")
                await (code.start() if is_whole else code.start_plugins())
            yield handlers
        finally:
            started.calls -= 1
            if not started.calls and started.code is not None:
                code, started.code = started.code, None
                await code.stop(asyncio.Event())
                await resources(container, "shutdown")
                declared.settings_in_use = None
            if is_whole:
                end(app)


class _Unconnected:
    """Replaces a running app and its producers: what is published is recorded."""

    send_timeout: float = 3.0

    def __init__(self, app: RocketApp, published: list[Published]) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._declared, self._published = declared_of(app), published
        self.send: PublishCall = through(self.producer)

    def producer(self, cluster: str) -> Any:
        self._declared.check_cluster(cluster, "")
        return _Keeping(self._keep, cluster)

    def handles(self, subscription: Subscription) -> bool:
        return True

    def change(self, change: TopicChange) -> None:
        """There is nothing to pause, and nothing to limit."""

    def _keep(self, message: Outgoing, cluster: str) -> int:
        """How many messages were published by now."""
        self._published.append(published_of(message, cluster, self.loop.time(), self._declared.payloads))
        return len(self._published)


class _Keeping:
    """Replaces the producer of one cluster."""

    def __init__(self, keep: Callable[[Outgoing, str], int], cluster: str) -> None:
        self._keep, self._cluster = keep, cluster

    def __getattr__(self, name: str) -> NoReturn:
        raise SetupError("", "a handler is called without a cluster: it cannot ask, nor begin a transaction")

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult:
        number = self._keep(message, self._cluster)
        return SendResult(f"NOTSENT{number:025X}", "", MessageQueue(message.topic, "none", 0), number - 1)

    async def send_many(self, messages: Sequence[Outgoing]) -> list[SendResult]:
        return [await self.send(message) for message in messages]

    async def send_one_way(self, message: Outgoing) -> None:
        await self.send(message)

    async def reply(self, request: Message, body: bytes, properties: Mapping[str, str]) -> None:
        to = reply_to(request.properties)
        topic = request.topic if to is None else to.topic
        await self.send(Outgoing(topic=topic, body=body, properties=properties))
