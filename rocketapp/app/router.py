"""Subscriptions written in one module and registered in another."""

from __future__ import annotations

from collections.abc import Callable

from rocketapp.app.declaration import Declaration
from rocketapp.app.places import place_of_call
from rocketapp.app.subscribing import Subscribing
from rocketapp.errors import SetupError


class Router(Subscribing):
    """Handlers that share a prefix of their topics' names, a group, a cluster; routers may be nested.

    prefix: put in front of each topic's name; prefixes of nested routers add up from outside.
    group, cluster: for the subscriptions that name none; the innermost that names one decides.
    """

    def __init__(self, *, prefix: str = "", group: str | None = None, cluster: str | None = None) -> None:
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
