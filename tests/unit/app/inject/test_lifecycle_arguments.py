"""Functions that run at start and stop get their arguments as handlers do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import Provide

from rocketapp import Publisher, RocketApp, SetupError
from rocketapp.plugin import CheckedArgument, hookimpl, option
from rocketapp.testing import TestApp

DIARY: list[str] = []


@dataclass(frozen=True)
class ShopOptions:
    limit: int = option(5, "Orders a day.")


class Prices: ...


class Session: ...


class Token: ...


def open_session() -> Iterator[Session]:
    DIARY.append("session opened")
    yield Session()
    DIARY.append("session closed")


async def read_token() -> Token:
    return Token()


class Parts(containers.DeclarativeContainer):
    prices = providers.Singleton(Prices)
    session = providers.Factory(open_session)
    token = providers.Coroutine(read_token)


class Clock: ...


class Clocks:
    @hookimpl
    def argument_provider(self, kind: Any) -> Any:
        return Clock if kind is Clock else None


@pytest.fixture(autouse=True)
def _diary() -> None:
    DIARY.clear()


def shop() -> RocketApp:
    return RocketApp("shop", container=Parts(), options=ShopOptions, plugins=[Clocks])


def test_a_function_gets_the_app_a_publisher_its_settings_and_what_container_and_plugins_provide() -> None:
    app, seen = shop(), list[Any]()

    @app.on_startup
    async def start(
        home: RocketApp,
        publisher: Publisher,
        options: ShopOptions,
        prices: Prices,
        clock: Clock,
        *,
        token: Token = Provide["token"],
    ) -> None:
        seen.extend([home is app, options.limit, type(prices), type(clock), type(token)])
        await publisher.publish("opened", "1")

    @app.on_shutdown
    def stop(prices: Prices, publisher: Publisher, token: Token = Provide["token"]) -> None:
        seen.extend([type(prices), type(token)])
        publisher.publish_sync("closed", "1")

    with TestApp(app) as t:
        assert seen == [True, 5, Prices, Clock, Token]
        assert [one.topic for one in t.published] == ["opened"]
    assert seen[5:] == [Prices, Token]
    assert [one.topic for one in t.published] == ["opened", "closed"]


def test_what_a_generator_provides_lives_as_long_as_the_function_and_a_lifespan_s_as_long_as_that() -> None:
    app = shop()

    @app.on_startup
    def start(session: Session = Provide["session"]) -> None:
        DIARY.append("started")

    @app.lifespan
    async def living(session: Session = Provide["session"]) -> AsyncIterator[None]:
        DIARY.append("enter")
        yield
        DIARY.append("leave")

    with TestApp(app):
        assert DIARY == ["session opened", "started", "session closed", "session opened", "enter"]
    assert DIARY[5:] == ["leave", "session closed"]


def test_what_only_a_handler_can_have_is_refused() -> None:
    class OfAMessage:
        @hookimpl
        def argument_provider(self, kind: Any) -> Any:
            return CheckedArgument(Clock, lambda subscription: None) if kind is Clock else None

    app = RocketApp("shop", plugins=[OfAMessage])
    with pytest.raises(SetupError, match="argument 'clock' of an on_startup function is a Clock, which nothing fills"):

        @app.on_startup
        def start(clock: Clock) -> None: ...


def test_an_annotation_that_names_nothing_is_refused_at_the_start() -> None:
    app = RocketApp("shop")

    def start(later: Later) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    app.on_startup(start)
    with pytest.raises(SetupError, match="import or define it outside of"), TestApp(app):
        pass
