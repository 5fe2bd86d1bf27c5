"""`subscribe` and `include`, for RocketApp and Router alike: what is written goes to `_take`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar, Unpack

from rocketapp.app.declare.declaration import Declaration, check_inherited
from rocketapp.app.declare.options import (
    INHERITED,
    KNOWN,
    Inherited,
    InheritedOptions,
    SubscribeOptions,
    options_given,
)
from rocketapp.app.places import place_at, place_of_call
from rocketapp.errors import SetupError
from rocketapp.user_line import calling_frame

F = TypeVar("F", bound=Callable[..., Any])


class Subscribing(ABC):
    """Where handlers are declared."""

    def subscribe(self, topic: str, **options: Unpack[SubscribeOptions]) -> Callable[[F], F]:
        """Make a function the handler of a topic. The function itself is returned unchanged.

        topic: its name; behind the router's prefix, if any.
        tags: `"paid || refunded"`; `"*"` (default) takes what no other handler of the topic and group names.
        group: the consumer group.
        orderly: per queue one message after the other, across the whole group.
        batch: hand over lists of this many messages, or of what came within `batch_wait` (0.1) seconds.
        concurrency: messages in hand at once: `consumer.concurrency` (64) for an async handler,
            `consumer.threads` (20) for a sync one.
        retries: attempts after the first (`consumer.retries`, 16), then the message is dead; -1 is
            unlimited (orderly only).
        retry: a Policy: the delays between attempts, and what exceptions mean.
        start: where a group without offsets begins: "first", "last" (default) or an aware datetime.
        timeout: seconds that one attempt of an async handler may take; None is without a limit.
        cluster: one of `RocketApp(clusters=...)`, or "" for the unnamed one.
        idempotent: handle each message once, as far as the idempotency store remembers. True tells copies by message
            id and body; a function takes the Message and returns what is the same in all copies.
        enabled: False checks the declaration and leaves it out.

        What is left out comes from the innermost Router that says it, then from the app, then from the settings:
        `group`, `cluster`, `orderly`, `concurrency`, `retries`, `retry`, `start`, `timeout` and
        `idempotent`.
        """
        if callable(topic):
            raise SetupError(place_of_call(), 'subscribe needs a topic: write @app.subscribe("the-topic")')
        frame = calling_frame(sys._getframe())
        place, names = place_at(frame), dict(frame.f_locals) if frame.f_code.co_name != "<module>" else {}
        given = options_given("subscribe", options, KNOWN, place)

        def decorate(function: F) -> F:
            self._take(Declaration(function=function, place=place, names=names, topic=topic, options=given))
            return function

        return decorate

    def include(self, router: Router) -> None:
        """Register what the router holds, and what is still added to it later."""
        if not isinstance(router, Router):
            raise SetupError(place_of_call(), f"include takes a Router, not {router!r}")
        self._may_include(router)
        router.feed(self._take)

    @abstractmethod
    def _take(self, declaration: Declaration) -> None:
        """Accept one declaration, or raise SetupError."""

    @abstractmethod
    def _may_include(self, router: Router) -> None:
        """Raise SetupError when this router cannot be included here, or not now."""


class Router(Subscribing):
    """Handlers that share a prefix of their topics' names, a group, a cluster; routers may be nested.

    prefix: put in front of each topic's name; prefixes of nested routers add up from outside.
    The other options (`group`, `cluster`, `orderly`, `concurrency`, `retries`, `retry`, `start`, `timeout`,
    `idempotent`) are for subscriptions that leave them out; the innermost router that says one decides. They mean
    what they mean in `subscribe`.
    """

    def __init__(self, *, prefix: str = "", **options: Unpack[InheritedOptions]) -> None:
        place = place_of_call()
        if not isinstance(prefix, str):
            raise SetupError(place, f"prefix={prefix!r}: give a string")
        self._prefix = prefix
        self._inherited = Inherited("Router", options_given("Router", options, INHERITED, place), place)
        check_inherited(self._inherited)
        self._declarations: list[Declaration] = []
        self._fed: list[Callable[[Declaration], None]] = []
        self._inside: list[Router] = []

    def feed(self, take: Callable[[Declaration], None]) -> None:
        """Hand over every declaration, those of today and those of later; `include` calls this."""
        for declaration in self._declarations:
            take(declaration)
        self._fed.append(take)

    def _take(self, declaration: Declaration) -> None:
        # Without the app's container and clusters only the declaration itself can be judged.
        within = declaration.within(self._inherited, prefix=self._prefix)
        within.check()
        self._declarations.append(within)
        for take in self._fed:
            take(within)

    def _may_include(self, router: Router) -> None:
        if router is self or router._contains(self):
            raise SetupError(place_of_call(), "a router cannot include itself")
        self._inside.append(router)

    def _contains(self, router: Router) -> bool:
        return any(one is router or one._contains(router) for one in self._inside)

    def __repr__(self) -> str:
        said = "".join(f" {name}={value!r}" for name, value in self._inherited.options.items())
        return f"<Router prefix={self._prefix!r}{said}: {len(self._declarations)} subscriptions>"
