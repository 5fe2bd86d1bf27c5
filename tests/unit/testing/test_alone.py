"""An app's handlers alone: all of it is started but the way to a broker."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from dependency_injector import containers, providers

from rocketapp import Message, Publisher, RocketApp, SetupError
from rocketapp.app.declare.declaration import Declaration
from rocketapp.clock import SystemClock
from rocketapp.plugin import hookimpl
from rocketapp.testing import Published, TestApp
from rocketapp.testing.calling import prepared, tried
from rocketapp.testing.stage import settings_of


def alone(app: RocketApp) -> AbstractAsyncContextManager[list[Declaration]]:
    return prepared(app, settings_of(app, {}, None), SystemClock(), [])


class Notes(list[str]):
    """What happened, in order; a plugin as well."""

    @hookimpl
    async def app_startup(self, app: Any) -> None:
        self.append("plugin starts")

    @hookimpl
    async def app_shutdown(self, app: Any) -> None:
        self.append("plugin stops")


async def test_everything_is_started_before_and_undone_after() -> None:
    notes = Notes()

    def opened() -> Iterator[str]:
        notes.append("opens")
        yield "session"
        notes.append("closes")

    class Shop(containers.DeclarativeContainer):
        session = providers.Resource(opened)

    app = RocketApp("shop", plugins=[notes], container=Shop())

    @app.lifespan
    @asynccontextmanager
    async def living(app: RocketApp) -> AsyncIterator[None]:
        notes.append("lives")
        yield
        notes.append("ends")

    @app.on_startup
    async def begin() -> None:
        notes.append("begins")

    @app.on_shutdown
    async def finish() -> None:
        notes.append("finishes")

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        notes.append("settles")

    async with alone(app) as (handler,):
        await tried(app, handler, [Message.make(b"1", topic="orders")], [])
    begun = ["opens", "plugin starts", "lives", "begins"]
    assert notes == [*begun, "settles", "finishes", "ends", "plugin stops", "closes"]


async def test_what_is_published_is_collected_by_every_way() -> None:
    app = RocketApp("shop", clusters={"eu": "10.0.0.1:9876"})
    published: list[Published] = []

    @app.subscribe("orders", cluster="eu")
    async def settle(message: Message, publisher: Publisher) -> None:
        await publisher.publish("a", b"1")
        await app.publish("b", b"2", cluster="eu")
        await app.publish_many("c", [b"3", b"4"])
        await app.publish_one_way("d", b"5")

    async with alone(app) as (handler,):
        await tried(app, handler, [Message.make(b"1", topic="orders")], published)
    assert [(one.topic, one.body) for one in published] == [
        ("a", b"1"),
        ("b", b"2"),
        ("c", b"3"),
        ("c", b"4"),
        ("d", b"5"),
    ]


async def test_a_start_that_fails_is_undone_and_raised() -> None:
    notes = Notes()
    app = RocketApp("shop", plugins=[notes])

    @app.on_startup
    async def begin() -> None:
        raise ValueError("no database")

    @app.subscribe("orders")
    async def settle(message: Message) -> None: ...

    with pytest.raises(SetupError, match="no database"):
        async with alone(app):
            pass
    assert notes == ["plugin starts", "plugin stops"]


def test_the_app_may_run_afterwards() -> None:
    app = RocketApp("shop")
    seen: list[bytes] = []

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        seen.append(message.body)

    async def try_it() -> None:
        async with alone(app) as (handler,):
            await tried(app, handler, [Message.make(b"alone", topic="orders")], [])

    asyncio.run(try_it())
    with TestApp(app) as t:
        t.publish("orders", b"running")
        t.settle()
    assert seen == [b"alone", b"running"]
