"""What happens to a handler's return value: it is published, answers a request, or gives way to a rollback."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn, get_origin

from rocketapp.app.call.chain import Call, Layer
from rocketapp.app.call.context import publisher_of
from rocketapp.app.places import plain_function
from rocketapp.app.publishing import (
    CORRELATION_ID,
    Publishing,
    check_names,
    correlation_id,
    outgoing,
    timeout_of,
)
from rocketapp.errors import RocketAppError, SetupError, named_message
from rocketapp.hooks.hook_types import Write
from rocketapp.model.names import topic_problem
from rocketapp.model.outcome import Decisions, Retry, is_outcome, is_plain
from rocketapp.model.outgoing import PublishOptions
from rocketapp.model.subscription import Subscription
from rocketapp.model.topic import Topic


def refuse_no_topic(decorator: str, topic: object, place: str) -> None:
    """Raises SetupError for what is no topic: without brackets it is the function that stands below."""
    if not isinstance(topic, str | Topic):
        raise SetupError(place, f'{decorator}: give a topic, not {topic!r}: write @app.{decorator}("the-topic")')


@dataclass(frozen=True, slots=True)
class Publication:
    """The arguments of one `publishes`, and its place in the code."""

    topic: str | Topic[Any]
    options: PublishOptions
    place: str

    @property
    def topic_name(self) -> str:
        return self.topic.name if isinstance(self.topic, Topic) else self.topic

    def check(self) -> None:
        """Raises SetupError for arguments that no message can have."""
        refuse_no_topic("publishes", self.topic, self.place)
        if (problem := topic_problem(self.topic_name)) is not None:
            raise SetupError(self.place, f"publishes: {problem}")
        try:
            check_names("publishes", self.options, PublishOptions)
            outgoing(self.topic_name, b"", self.options)
            timeout_of(self.options)
        except (TypeError, ValueError) as error:
            raise SetupError(self.place, f"publishes: {str(error).removeprefix('publishes() ')}") from None

    def bodies(self, value: Any) -> list[Any]:
        """The bodies to publish for a returned value: the items of a list, unless the Topic holds lists."""
        is_one = isinstance(self.topic, Topic) and (get_origin(self.topic.kind) or self.topic.kind) is list
        return value if isinstance(value, list) and not is_one else [value]

    def within(self, prefix: str) -> Publication:
        """The same with the prefix of a router. A Topic has its full name already."""
        return self if isinstance(self.topic, Topic) or not prefix else replace(self, topic=prefix + self.topic)


def publication_layer(
    publication: Publication, subscription: Subscription, publishing: Publishing, others: Iterable[Layer]
) -> Layer:
    """The layer that publishes: outside of a transaction among the others, or through its outbox.

    Raises SetupError for a transaction without an outbox: the message could be sent although its effect was rolled
    back.
    """
    transactions = [layer for layer in others if layer.name == "database"]
    if not transactions:
        publisher = publisher_of(subscription, publishing)
        build = partial(published, publication=publication, publisher=publisher, is_async=subscription.is_async)
        return Layer("answer", f"publishes {publication.topic_name}", build)
    write = transactions[-1].write
    if write is None:
        raise SetupError(
            publication.place,
            f"publishes: plugin {transactions[-1].plugin} commits what {subscription.handler_name} does, and has no "
            "outbox for what it returns: create one, Outbox(database), or remove publishes",
        )
    for name in ("timeout", "queue", "recallable"):
        if publication.options.get(name) is not None:
            raise SetupError(publication.place, f"publishes: {name}= is not kept by an outbox: remove it")
    build = partial(_written, publication=publication, write=write, subscription=subscription)
    return Layer("outbox", f"publishes {publication.topic_name}", build)


def published(call: Call, publication: Publication, publisher: Callable[[Any], Publishing], *, is_async: bool) -> Call:
    """Publish what `call` returns, of a list each item in turn. A failed send fails the attempt.

    Nothing is sent before every item has its form: one that has none would have the others sent at each attempt.
    """

    def sendings(message: Any, value: Any) -> list[Any]:
        own = publisher(message)
        return [own.sending(publication.topic, body, publication.options) for body in publication.bodies(value)]

    async def send(message: Any, value: Any) -> None:
        for one in sendings(message, value):
            await one.here()

    def send_sync(message: Any, value: Any) -> None:
        for one in sendings(message, value):
            one.blocking("publish")

    return _followed(call, send if is_async else send_sync, is_async=is_async)


def _followed(call: Call, follow: Callable[[Any, Any], Any], *, is_async: bool, mark: bytes = b"") -> Call:
    """`call`, followed by `follow(message, value)` for a returned value that is not an outcome.

    mark: only for messages with this in their raw properties; empty: for all.
    """

    async def one_async(message: Any) -> Any:
        value = await call(message)
        return await follow(message, value) if is_plain(value) and mark in message.raw_properties else value

    def one(message: Any) -> Any:
        value = call(message)
        return follow(message, value) if is_plain(value) and mark in message.raw_properties else value

    return one_async if is_async else one


def _written(call: Call, publication: Publication, write: Write, subscription: Subscription) -> Call:
    """Publish through an outbox: the message is sent after the commit of the transaction in which `call` runs."""
    topic, options = publication.topic, publication.options
    properties = options.get("properties") or {}

    def written(message: Any, value: Any) -> Any:
        if not is_plain(value):
            return value
        following = {CORRELATION_ID: correlation_id(message), **properties}
        for body in publication.bodies(value):
            name = topic.name_for(body) if isinstance(topic, Topic) else topic
            write(name, body, {"cluster": subscription.cluster, **options, "properties": following})
        return None

    return _told(call, written, is_async=subscription.is_async)


def _told(call: Call, tell: Callable[[Any, Any], Any], *, is_async: bool) -> Call:
    """`call`, with its result replaced by `tell(message, value)`."""

    async def one_async(message: Any) -> Any:
        return tell(message, await call(message))

    def one(message: Any) -> Any:
        return tell(message, call(message))

    return one_async if is_async else one


@dataclass(slots=True)
class Publications:
    """The `publishes` declarations of one app or router, until `subscribe` takes the same function.

    inside: those of the routers in it.
    _said: by the function's id; keeps the function, so that the id stays its own.
    """

    inside: list[Publications] = field(default_factory=list)
    _said: dict[int, tuple[Any, Publication]] = field(default_factory=dict)
    _taken: set[int] = field(default_factory=set)

    def add(self, function: Any, publication: Publication) -> None:
        """Raises SetupError for a second one."""
        if (before := self._said.get(id(function))) is not None:
            mend = "ask for a Publisher to publish more"
            raise SetupError(publication.place, f"publishes is said twice, first at {before[1].place}: {mend}")
        self._said[id(function)] = function, publication

    def of(self, function: Any) -> Publication | None:
        """The declaration for a function that is being subscribed, or None."""
        if id(function) in self._said:
            self._taken.add(id(function))
        return self._said.get(id(function), (None, None))[1]

    def check(self) -> None:
        """Raises SetupError for a function that was never subscribed: its result would never be published."""
        for key, (_, publication) in self._said.items():
            if key not in self._taken:
                mend = "write subscribe directly above it"
                raise SetupError(
                    publication.place, f"publishes decorates a function that is not subscribed here: {mend}"
                )
        for one in self.inside:
            one.check()


log: logging.Logger = logging.getLogger("rocketapp.handlers")
_MARK = b"REPLY_TO_CLIENT\x01"
"""In the properties of every request."""


def answers(function: Callable[..., Any]) -> bool:
    """Whether a function answers requests: it has a return annotation other than None."""
    try:
        said = inspect.signature(plain_function(function)).return_annotation
    except (TypeError, ValueError):
        return False
    return said not in (inspect.Signature.empty, None, "None", type(None), NoReturn, "NoReturn")


def answer_layer(subscription: Subscription, publishing: Publishing) -> Layer:
    """What answers requests with what the handler returns."""
    own = publishing.to(subscription.cluster)
    return Layer("answer", "answers requests", partial(answering, publishing=own, is_async=subscription.is_async))


def answering(call: Call, publishing: Publishing, *, is_async: bool) -> Call:
    """Reply with what `call` returns when its message is a request. None and outcomes do not answer.

    A reply that is lost is only logged: the effect is done, and the requester may be gone.
    """

    async def reply(message: Any, value: Any) -> None:
        with _may_be_lost(message):
            await publishing.reply(message, value)

    def reply_sync(message: Any, value: Any) -> None:
        with _may_be_lost(message):
            publishing.reply_sync(message, value)

    return _followed(call, reply if is_async else reply_sync, is_async=is_async, mark=_MARK)


@contextmanager
def _may_be_lost(request: Any) -> Iterator[None]:
    """Context manager: a reply that cannot be sent, or has no form as a body, is logged and fails nothing."""
    try:
        yield
    except Exception as error:
        named = named_message(request.message_id, request.keys)
        said = error if isinstance(error, RocketAppError) else f"{type(error).__name__}: {error}"
        log.warning("no reply to the request %s in %s, which is done all the same: %s", named, request.topic, said)


def decided(call: Call, decisions: Decisions, subscription: Subscription) -> Call:
    """`call`, with the Retry of a `Context.rollback` as its outcome. An outcome of the handler takes precedence."""
    is_batch = subscription.batch is not None

    def outcome(item: Any, result: Any) -> Any:
        decision = decisions.look((item[0] if is_batch else item).queue)
        return decision if isinstance(decision, Retry) and not is_outcome(result) else result

    return _told(call, outcome, is_async=subscription.is_async)
