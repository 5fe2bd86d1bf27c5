"""The exit code of a start that failed: 2 where a declaration or a setting is wrong, 1 where code failed as it ran."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest
from dependency_injector import containers, providers

from rocketapp import ConfigError, RocketApp, RocketAppError, SetupError
from rocketapp.cli.processes.worker import start_failure
from rocketapp.plugin import Surface, hookimpl
from rocketapp.testing import TestApp

Raise = Callable[[], None]
Declare = Callable[[Raise], RocketApp]


def startup_function(fail: Raise) -> RocketApp:
    app = RocketApp("shop")
    app.on_startup(fail)
    return app


def async_startup_function(fail: Raise) -> RocketApp:
    app = RocketApp("shop")

    @app.on_startup
    async def first() -> None:
        fail()

    return app


def lifespan(fail: Raise) -> RocketApp:
    app = RocketApp("shop")

    @app.lifespan
    async def around() -> AsyncIterator[None]:
        fail()
        yield

    return app


def plugin_setup(fail: Raise) -> RocketApp:
    class Plugin:
        @hookimpl
        def app_setup(self, app: Surface) -> None:
            fail()

    return RocketApp("shop", plugins=[Plugin()])


def plugin_startup(fail: Raise) -> RocketApp:
    class Plugin:
        @hookimpl
        async def app_startup(self, app: Surface) -> None:
            fail()

    return RocketApp("shop", plugins=[Plugin()])


def dependency(fail: Raise) -> RocketApp:
    def opened() -> Iterator[None]:
        fail()
        yield

    class Container(containers.DeclarativeContainer):
        database = providers.Resource(opened)

    return RocketApp("shop", container=Container())


def wrong_declaration() -> None:
    RocketApp("two words")


def wrong_setting() -> None:
    raise ConfigError("database.url", "is not set: give it")


def outage() -> None:
    raise OSError("no database")


async def code_of(app: RocketApp) -> int:
    with pytest.raises((RocketAppError, OSError)) as raised:
        async with TestApp(app):
            pass
    failure = start_failure(raised.value)
    assert len(failure.text.splitlines()) == 1
    return failure.code


@pytest.mark.parametrize("wrong", [wrong_declaration, wrong_setting])
@pytest.mark.parametrize(
    "declare", [startup_function, async_startup_function, lifespan, plugin_setup, plugin_startup, dependency]
)
async def test_a_declaration_or_setting_that_is_wrong_is_one_wherever_it_is_found(
    declare: Declare, wrong: Raise
) -> None:
    with pytest.raises((SetupError, ConfigError)):
        wrong()
    assert await code_of(declare(wrong)) == 2


@pytest.mark.parametrize("declare", [startup_function, async_startup_function, lifespan, plugin_startup, dependency])
async def test_code_that_fails_as_it_runs_may_succeed_the_next_time(declare: Declare) -> None:
    assert await code_of(declare(outage)) == 1
