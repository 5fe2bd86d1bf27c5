"""The decorators that RocketApp and Router share: `subscribe`, `publishes`, `poll`, `transaction`; and `include`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from rocketapp.app.call.chain import Scope
from rocketapp.app.call.context import Context
from rocketapp.app.call.returned import Publication, Publications, refuse_no_topic
from rocketapp.app.call.transaction import Transaction
from rocketapp.app.declare.declaration import Declaration
from rocketapp.app.declare.options import (
    KNOWN,
    POLLED,
    InheritedOptions,
    PollOptions,
    SubscribeOptions,
    option_problem,
    options_given,
    read_inherited,
)
from rocketapp.app.places import place_at, place_of_call
from rocketapp.app.publishing import Publisher
from rocketapp.errors import SetupError
from rocketapp.model.outcome import Outcome
from rocketapp.model.outgoing import PublishOptions
from rocketapp.model.topic import Topic
from rocketapp.user_line import calling_frame
from rocketapp.wire.record import Message

T = TypeVar("T")
P = ParamSpec("P")
R = TypeVar("R")
Ours = TypeVar("Ours", Message, list[Message], Context, Publisher)
"""What a first argument may be in place of the payload."""


class HandlerOf(Protocol[T]):
    """Makes a function a handler whose payload, or list of payloads, is a T; returns it unchanged.

    A checker sees the payload when it is the first argument.
    """

    @overload
    def __call__(self, function: Callable[Concatenate[T, P], R], /) -> Callable[Concatenate[T, P], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[list[T], P], R], /) -> Callable[Concatenate[list[T], P], R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Ours, P], R], /) -> Callable[Concatenate[Ours, P], R]: ...


class Returning(Protocol[T]):
    """Takes a function that returns a T, a list of them, None or an outcome; returns it unchanged."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T | None]], /
    ) -> Callable[P, Coroutine[Any, Any, T | None]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, T | Outcome | None]], /
    ) -> Callable[P, Coroutine[Any, Any, T | Outcome | None]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, list[T]]], /
    ) -> Callable[P, Coroutine[Any, Any, list[T]]]: ...
    @overload
    def __call__(self, function: Callable[P, T], /) -> Callable[P, T]: ...
    @overload
    def __call__(self, function: Callable[P, T | None], /) -> Callable[P, T | None]: ...
    @overload
    def __call__(self, function: Callable[P, T | Outcome | None], /) -> Callable[P, T | Outcome | None]: ...
    @overload
    def __call__(self, function: Callable[P, list[T]], /) -> Callable[P, list[T]]: ...


F = TypeVar("F", bound=Callable[..., Any])


class Subscribing(ABC):
    """The base of RocketApp and Router: declares handlers and transactions.

    _scope: options that its subscriptions inherit, and what is put around its handlers.
    _publications: what its handlers publish.
    """

    _scope: Scope
    _publications: Publications

    def _declare(self, function: str, topic: str | Topic[Any], given: dict[str, Any]) -> Callable[[F], F]:
        """The decorator that `subscribe` or `poll` returns. `given`: the keywords of the user's call."""
        is_polled = function == "poll"
        name, kind = (topic.name, topic.kind) if isinstance(topic, Topic) else (topic, None)
        frame = calling_frame(sys._getframe())
        place = place_at(frame)
        refuse_no_topic(function, topic, place)
        options = options_given(function, given, POLLED | {"every"} if is_polled else KNOWN, place)
        names = dict(frame.f_locals) if frame.f_code.co_name != "<module>" else {}
        middlewares = options.pop("middlewares", ())
        if problem := option_problem("middlewares", middlewares):
            raise SetupError(place, problem)
        own = Scope("handler", place, options)
        for middleware in middlewares:
            own.add_middleware(middleware, place)

        def decorate(handler: F) -> F:
            written = Declaration(
                function=handler, place=place, names=names, topic=name, kind=kind, options=options, scopes=(own,)
            )
            self._take(written if is_polled else replace(written, publication=self._publications.of(handler)))
            return handler

        return decorate

    @abstractmethod
    def _take(self, declaration: Declaration) -> None:
        """Accept a declaration, or raise SetupError."""

    @abstractmethod
    def _take_transaction(self, transaction: Transaction[Any], prefix: str) -> None:
        """Accept a transaction, or raise SetupError. `prefix`: for a topic that is a str."""

    def poll(self, topic: str | Topic[Any], *, every: float, **options: Unpack[PollOptions]) -> Callable[[F], F]:
        """Have a function called for each queue of a topic at its times: it pulls what it wants.

        `async def work(pull: Pull)` awaits `pull(32)`, a plain `def work(pull: SyncPull)` runs in a thread. Each queue
        that this member has gets its own calls, one after the other; never two at a time, in the whole group. When
        the function returns, what it has pulled is committed. When it raises, nothing of it is, and the next call
        gets the same messages: there is neither a retry topic nor a dead letter. Skip, raised or returned, commits;
        Retry(after=) sets the next time; Pause pauses the topic. Beside the pull it may take a Publisher and what a
        container provides.

        topic: its name; behind the router's prefix, if any. Or a Topic.
        every: seconds from the start of one call for a queue to the start of the next, more than 0. A call that takes
            longer is followed at once. `pull.next_in(seconds)` sets another time.
        tags, sql, group, cluster, start, broadcast, enabled: as in `subscribe`.
        concurrency: queues for which the function runs at once in this process: `consumer.concurrency` (64) for an
            async function, `consumer.threads` (20) for a sync one.
        timeout: seconds that one call of an async function may take; None is without a limit.

        What is left out comes from the innermost Router that says it, then from the app, then from the settings.
        Middlewares and exception handlers see single messages or batches, as do most wrappers of plugins: they do not
        stand around a polled function. Traces, metrics and the log context do. Raises SetupError for a topic that the
        group takes with `subscribe`, too.
        """
        return self._declare("poll", topic, {**options, "every": every})

    @overload
    def subscribe(self, topic: Topic[T], **options: Unpack[SubscribeOptions]) -> HandlerOf[T]: ...
    @overload
    def subscribe(self, topic: str, **options: Unpack[SubscribeOptions]) -> Callable[[F], F]: ...

    def subscribe(self, topic: str | Topic[Any], **options: Unpack[SubscribeOptions]) -> Any:
        """Make a function the handler of a topic. The function itself is returned unchanged.

        topic: its name; behind the router's prefix, if any. Or a Topic, whose handlers take its type, or the Message.
        tags: `["paid", "refunded"]` or `"paid || refunded"`; `"*"` (default) takes what no other handler of the topic
            and group names.
        group: the consumer group.
        broadcast: every member of the group gets every message, each worker process is one. A message that fails is
            dropped; in order it is tried again in place first. Such a group keeps its offsets in files.
        sql: an SQL92 filter that the broker applies, instead of `tags`: `"amount > 5 AND TAGS = 'paid'"`.
        mode: "push" (default): the queues are shared out among the members, and pulled. "pop": brokers (the
            embedded one, and Apache RocketMQ from 5.0 on) hand out messages one by one, to any member.
        orderly: per queue one message after the other, across the whole group.
        batch: hand over lists of this many messages, or of what came within `batch_wait` (0.1) seconds.
        concurrency: messages in flight at once: `consumer.concurrency` (64) for an async handler,
            `consumer.threads` (20) for a sync one.
        retries: attempts after the first (`consumer.retries`, 16), then the message is dead; -1 is
            unlimited (orderly only).
        retry: a Policy: the delays between attempts, and what exceptions mean.
        start: where a group without offsets begins: "first", "last" (default) or an aware datetime.
        timeout: seconds that one attempt of an async handler may take; None is without a limit.
        cluster: one of `RocketApp(clusters=...)`, or "" for the unnamed one.
        idempotent: handle each message once, as far as the idempotency store remembers. True tells copies by message
            id, tag and body; a function takes the Message and returns what is the same in all copies.
        commit: "manual": an orderly handler says by `Context.commit` and `Context.rollback` when what it has handled is
            committed, or handled again; "auto" (default): returning commits.
        rate: messages that may start per second in each process.
        order_by: messages with equal keys one after the other, many keys at once, under the lock of their queue: a
            function of the message that returns its key, or the name of a property.
        filter: a function of the Message; what it refuses is done, and counted, without a call of the handler.
        middlewares: around this handler alone, as `middleware` says; inside those of the app and its routers.
        enabled: False checks the declaration and leaves it out.

        What is left out comes from the innermost Router that says it, then from the app, then from the settings:
        `group`, `cluster`, `broadcast`, `mode`, `orderly`, `concurrency`, `retries`, `retry`, `start`, `timeout`
        and `idempotent`.
        """
        return self._declare("subscribe", topic, {**options})

    @overload
    def publishes(self, topic: Topic[T], **options: Unpack[PublishOptions]) -> Returning[T]: ...
    @overload
    def publishes(self, topic: str, **options: Unpack[PublishOptions]) -> Callable[[F], F]: ...

    def publishes(self, topic: str | Topic[Any], **options: Unpack[PublishOptions]) -> Any:
        """Publish what a handler returns, before its message is done. The function itself is returned unchanged.

        Stands below `subscribe`, next to the function, once. The keywords are those of `publish`; a str topic gets the
        router's prefix. What is returned is one body; of a list each item is one, unless a Topic holds lists. None and
        outcomes are not published. It is of the type of a Topic, as checkers see. A send that fails fails the attempt:
        the handler runs again, and a second copy may be sent. The messages go to the handler's cluster and carry its
        correlation id, as with a Publisher. Not for `batch=`.
        """
        publication = Publication(topic, options, place_of_call())
        publication.check()

        def decorate(function: F) -> F:
            self._may_declare("publishes")
            self._publications.add(function, publication)
            return function

        return decorate

    @overload
    def transaction(
        self, topic: Topic[T], *, cluster: str = ""
    ) -> Callable[[Callable[[T], Awaitable[bool]]], Transaction[T]]: ...
    @overload
    def transaction(
        self, topic: str, *, cluster: str = ""
    ) -> Callable[[Callable[[T], Awaitable[bool]]], Transaction[T]]: ...

    def transaction(self, topic: str | Topic[Any], *, cluster: str = "") -> Any:
        """Make an async function the local part of a transaction that a message belongs to.

        The function takes what is published and says True (consumers get the message) or False (they never see it).
        `await place(order, tag="paid")` sends the message and calls the function. `@place.check` stands above the async
        function that says how a transaction has ended, when the broker was not told: it gets the payload, or the
        Message, and may say None: not known yet.
        topic: a str gets the router's prefix, if there is a router.
        cluster: one of `RocketApp(clusters=...)`, or "" for the unnamed one.

        Raises SetupError for a second one of the same topic: a broker that asks names the topic alone.
        """
        place = place_of_call()
        refuse_no_topic("transaction", topic, place)

        def decorate(function: Callable[[Any], Awaitable[bool]]) -> Transaction[Any]:
            made = Transaction(topic, function, cluster=cluster, place=place)
            self._take_transaction(made, "")
            return made

        return decorate

    def middleware(self, function: F) -> F:
        """Put a function `(message, call_next)` around every handler of its kind here, also of those declared later.

        An `async def` serves async handlers, and awaits `call_next(message)`; a plain `def` serves sync handlers, in
        their thread. Where there are handlers of both kinds, two are needed: a handler for whose kind there is none is
        refused at start. Of a batch, `message` is the list of its messages. For one handler alone: `middlewares=` of
        `subscribe`.

        The first declared is outermost. What it returns or raises counts as a handler's does; None leaves the outcome
        as the handler said it. Without `call_next` the handler is not called, and the message is done.
        """
        self._may_declare("middleware")
        self._scope.add_middleware(function, place_of_call())
        return function

    def exception_handler(self, kind: type[Exception]) -> Callable[[F], F]:
        """Make a function `(message, error)` say what an exception of a handler means.

        It returns Retry, Skip, DeadLetter or Pause; None is done, and anything else a failed attempt. The nearest class
        decides, a router before the app. Exceptions of middlewares are mapped too; outcomes that are raised pass as
        they are. A plain `def` serves all handlers, and on an async one must not block; an `async def` serves async
        handlers alone.
        """
        place = place_of_call()
        self._scope.check_kind(kind, place)

        def decorate(function: F) -> F:
            self._may_declare("exception_handler")
            self._scope.add_exception_handler(kind, function, place)
            return function

        return decorate

    def include(self, router: Router) -> None:
        """Register what the router holds, and what is still added to it later."""
        if not isinstance(router, Router):
            raise SetupError(place_of_call(), f"include takes a Router, not {router!r}")
        self._may_declare("include")
        if self._is_within(router):
            raise SetupError(place_of_call(), "a router cannot include itself")
        self._publications.inside.append(router._publications)
        for declaration in router._declarations:
            self._take(declaration)
        for transaction, prefix in router._transactions:
            self._take_transaction(transaction, prefix)
        router._homes.append(self)

    @abstractmethod
    def _may_declare(self, what: str) -> None:
        """Raise SetupError when it is too late."""

    def _is_within(self, router: Router) -> bool:
        """Whether this is `router`, or is included in it."""
        return False


class Router(Subscribing):
    """Handlers that share a prefix of their topics' names, a group, a cluster; routers may be nested.

    prefix: put in front of each topic's name; prefixes of nested routers add up from outside.
    The other options (`group`, `cluster`, `broadcast`, `mode`, `orderly`, `concurrency`, `retries`, `retry`, `start`,
    `timeout`, `idempotent`) are for subscriptions that leave them out; the innermost router that says one decides.
    They mean what they mean in `subscribe`.
    """

    def __init__(self, *, prefix: str = "", **options: Unpack[InheritedOptions]) -> None:
        place = place_of_call()
        if not isinstance(prefix, str):
            raise SetupError(place, f"prefix={prefix!r}: give a string")
        self._prefix = prefix
        self._scope = read_inherited("Router", options, place, beside=frozenset({"prefix"}))
        self._publications = Publications()
        self._declarations: list[Declaration] = []
        self._transactions: list[tuple[Transaction[Any], str]] = []
        """Each with the prefix of its topic."""
        self._homes: list[Subscribing] = []
        """The routers and apps that include it, and hear of everything that is declared later."""

    def _take(self, declaration: Declaration) -> None:
        # Without the app's container and clusters only the declaration itself can be judged.
        within = declaration.within(self._scope, prefix=self._prefix)
        within.check()
        self._declarations.append(within)
        for home in self._homes:
            home._take(within)

    def _take_transaction(self, transaction: Transaction[Any], prefix: str) -> None:
        self._may_declare("transaction")
        prefix = self._prefix + prefix
        self._transactions.append((transaction, prefix))
        for home in self._homes:
            home._take_transaction(transaction, prefix)

    def _may_declare(self, what: str) -> None:
        for home in self._homes:
            home._may_declare(what)

    def _is_within(self, router: Router) -> bool:
        return router is self or any(home._is_within(router) for home in self._homes)

    def __repr__(self) -> str:
        said = "".join(f" {name}={value!r}" for name, value in self._scope.options.items())
        return f"<Router prefix={self._prefix!r}{said}: {len(self._declarations)} subscriptions>"
