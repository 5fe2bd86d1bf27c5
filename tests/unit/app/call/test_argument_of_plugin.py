"""Arguments that a plugin provides, by their annotation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rocketapp import Message, RocketApp, SetupError
from rocketapp.plugin import CheckedArgument, PluginError, Subscription, hookimpl
from tests.unit.app.given import call_of, message


class Session: ...


class Sessions:
    """Provides a session per message."""

    def __init__(self, provide: object = Session) -> None:
        self.provide = provide

    @hookimpl
    def argument_provider(self, kind: Any) -> Any:
        return self.provide if kind is Session else None


class Others:
    @hookimpl
    def argument_provider(self, kind: Any) -> Callable[[], Any] | None:
        return object if kind is Session else None


def test_a_sync_handler_gets_what_a_plugin_provides() -> None:
    app, taken = RocketApp("shop", plugins=[Sessions()]), list[object]()

    @app.subscribe("orders")
    def take(message: Message, session: Session) -> None:
        taken.append(session)

    call_of(app)(message())
    call_of(app)(message())
    assert [type(one) for one in taken] == [Session] * 2
    assert taken[0] is not taken[1]


async def test_an_async_handler_may_have_an_async_provider() -> None:
    async def provide() -> Session:
        return Session()

    app, taken = RocketApp("shop", plugins=[Sessions(provide)]), list[object]()

    @app.subscribe("orders")
    async def take(message: Message, session: Session) -> None:
        taken.append(session)

    await call_of(app)(message())
    assert [type(one) for one in taken] == [Session]


class OnlyAsync:
    """Provides a session for async handlers alone."""

    @hookimpl
    def argument_provider(self, kind: Any) -> CheckedArgument | None:
        return CheckedArgument(Session, self.problem) if kind is Session else None

    def problem(self, subscription: Subscription) -> str | None:
        return None if subscription.is_async else "sessions are for async handlers: make it `async def`"


def test_a_plugin_refuses_a_handler_that_cannot_have_its_argument() -> None:
    app = RocketApp("shop", plugins=[OnlyAsync])

    @app.subscribe("orders")
    def take(message: Message, session: Session) -> None: ...

    with pytest.raises(SetupError, match=r"take: argument 'session': sessions are for async handlers") as caught:
        call_of(app)
    assert caught.value.place.startswith(f"{__file__}:")


async def test_a_handler_that_can_have_a_checked_argument_gets_it() -> None:
    app, taken = RocketApp("shop", plugins=[OnlyAsync]), list[object]()

    @app.subscribe("orders")
    async def take(message: Message, session: Session) -> None:
        taken.append(session)

    await call_of(app)(message())
    assert [type(one) for one in taken] == [Session]


def test_what_no_plugin_provides_is_refused_as_before() -> None:
    app = RocketApp("shop")
    with pytest.raises(SetupError, match="annotation Session, which nothing fills"):

        @app.subscribe("orders")
        def take(message: Message, session: Session) -> None: ...


def test_two_plugins_for_one_annotation_are_refused() -> None:
    app = RocketApp("shop", plugins=[Sessions(), Others()])
    with pytest.raises(SetupError, match=r"Sessions and .*Others all provide"):

        @app.subscribe("orders")
        def take(message: Message, session: Session) -> None: ...


def test_an_answer_that_cannot_be_called_is_refused() -> None:
    app = RocketApp("shop", plugins=[Sessions(provide=5)])
    with pytest.raises(PluginError, match="argument_provider returned 5: return a function, or None"):

        @app.subscribe("orders")
        def take(message: Message, session: Session) -> None: ...
