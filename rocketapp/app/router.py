"""`subscribe` and `include`, for RocketApp and Router alike: what is written goes to `_take`."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeVar

from rocketapp.app.declare.declaration import DEFAULT_RETRIES, Declaration
from rocketapp.app.places import place_at, place_of_call
from rocketapp.errors import SetupError
from rocketapp.model.subscription import Start
from rocketapp.user_line import calling_frame

F = TypeVar("F", bound=Callable[..., Any])


class Subscribing(ABC):
    """Where handlers are declared."""

    def subscribe(
        self,
        topic: str,
        *,
        tags: str = "*",
        group: str | None = None,
        orderly: bool = False,
        batch: int | None = None,
        batch_wait: float = 0.1,
        concurrency: int | None = None,
        retries: int = DEFAULT_RETRIES,
        start: Start = "last",
        timeout: float | None = None,
        cluster: str | None = None,
        enabled: bool = True,
    ) -> Callable[[F], F]:
        """Make a function the handler of a topic. The function itself is returned unchanged.

        topic: its name; behind the router's prefix, if any.
        tags: `"paid || refunded"`; `"*"` takes what no other handler of the topic and group names.
        group: the consumer group; None is the router's, else the settings', else the app's name.
        orderly: per queue one message after the other, across the whole group.
        batch: hand over lists of this many messages, or of what came within `batch_wait` seconds.
        concurrency: messages in hand at once; None is `consumer.concurrency` (64) for an async
            handler and `consumer.threads` (20) for a sync one.
        retries: attempts after the first, then the message is dead; -1 is unlimited (orderly only).
            Left out, `consumer.retries` may change it.
        start: where a group without offsets begins: "first", "last" or an aware datetime.
        timeout: seconds that one attempt of an async handler may take.
        cluster: one of `RocketApp(clusters=...)`; None is the router's, else the unnamed one.
        enabled: False checks the declaration and leaves it out.
        """
        if callable(topic):
            raise SetupError(place_of_call(), 'subscribe needs a topic: write @app.subscribe("the-topic")')
        frame = calling_frame(sys._getframe())
        place, names = place_at(frame), dict(frame.f_locals) if frame.f_code.co_name != "<module>" else {}

        def decorate(function: F) -> F:
            declaration = Declaration(
                function=function,
                place=place,
                names=names,
                topic=topic,
                tags=tags,
                group=group,
                orderly=orderly,
                batch=batch,
                batch_wait=batch_wait,
                concurrency=concurrency,
                retries=retries,
                start=start,
                timeout=timeout,
                cluster=cluster,
                enabled=enabled,
            )
            self._take(declaration)
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
    group, cluster: for the subscriptions that name none; the innermost that names one decides.
    """

    def __init__(self, *, prefix: str = "", group: str | None = None, cluster: str | None = None) -> None:
        if not isinstance(prefix, str):
            raise SetupError(place_of_call(), f"prefix={prefix!r}: give a string")
        self.prefix, self.group, self.cluster = prefix, group, cluster
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
        within = declaration.within(prefix=self.prefix, group=self.group, cluster=self.cluster)
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
        return f"<Router prefix={self.prefix!r} group={self.group!r}: {len(self._declarations)} subscriptions>"
