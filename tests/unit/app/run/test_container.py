from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import Closing, Provide, Provider, inject

from rocketapp import Message, RocketApp, SetupError
from rocketapp.clock import SystemClock
from rocketapp.testing import TestApp
from tests.unit.app.given import call_of, line_of, message
from tests.unit.app.parts import Diary, Noted, NotedProducer, lifecycle_of


class Database:
    def __init__(self, url: str = "memory") -> None:
        self.url = url


class Cache(Database): ...


async def connect() -> Database:
    await asyncio.sleep(0)
    return Database("async")


class Shop(containers.DeclarativeContainer):
    """A user's container. Some of its names are ours as well: that means nothing."""

    database = providers.Singleton(Database)
    cache = providers.Factory(Cache)
    second_cache = providers.Singleton(Cache)
    remote = providers.Coroutine(connect)
    settings = providers.Configuration()
    client = providers.Object("an HTTP client")


def refused(function: Any, container: object = None) -> str:
    app = RocketApp("shop", container=container)
    with pytest.raises(SetupError) as caught:
        app.subscribe("orders")(function)
    assert caught.value.place == line_of(function)
    return caught.value.problem


def test_an_argument_comes_from_a_provider_by_marker_or_by_type() -> None:
    app, seen = RocketApp("shop", container=Shop), []

    @app.subscribe("orders")
    def handle(
        message: Message,
        by_type: Database,
        annotated: Annotated[Cache, Provide["cache"]],
        by_name: Database = Provide["database"],
        by_reference: Database = Provide[Shop.database],
        attribute: str = Provide[Shop.database.provided.url],
        provider: Any = Provider["cache"],
    ) -> None:
        seen.append((by_type, by_name, by_reference, attribute, provider(), annotated))

    call_of(app)(message())
    by_type, by_name, by_reference, attribute, made, annotated = seen[0]
    assert by_type is by_name is by_reference
    assert attribute == "memory"
    assert isinstance(made, Cache)
    assert isinstance(annotated, Cache)


def test_a_factory_is_asked_for_each_message_and_an_override_counts() -> None:
    container = Shop()
    app, seen = RocketApp("shop", container=container), list[Any]()

    @app.subscribe("orders")
    def handle(message: Message, cache: Cache = Provide["cache"]) -> None:
        seen.append(cache)

    call = call_of(app)
    call(message())
    call(message())
    with container.cache.override(providers.Object("replaced in a test")):
        call(message())
    assert seen[0] is not seen[1]
    assert seen[2:] == ["replaced in a test"]


async def test_an_asynchronous_provider_is_awaited_for_async_handlers() -> None:
    app = RocketApp("shop", container=Shop)

    @app.subscribe("orders")
    async def handle(message: Message, *, remote: Database = Provide["remote"]) -> str:
        return remote.url

    assert await call_of(app)(message()) == "async"


def test_an_asynchronous_provider_is_asked_on_the_loop_for_sync_handlers() -> None:
    app, seen = RocketApp("shop", container=Shop), []

    @app.subscribe("orders")
    def handle(message: Message, remote: Database = Provide["remote"]) -> None:
        seen.append(remote.url)

    with TestApp(app) as t:
        t.publish("orders", {})
        t.settle()
    assert seen == ["async"]


def test_what_the_container_does_not_have_is_refused() -> None:
    def unknown(message: Message, database: Database = Provide["databse"]) -> None: ...

    def ambiguous(message: Message, cache: Cache) -> None: ...

    def closing(message: Message, database: Database = Closing[Provide["database"]]) -> None: ...

    def without(message: Message, database: Database = Provide["database"]) -> None: ...

    assert "no provider 'databse': it has cache, client, database" in refused(unknown, Shop)
    assert "cache and second_cache of the container all provide Cache" in refused(ambiguous, Shop)
    assert "the container has no provider" in refused(closing, Shop)
    assert "give the app a container" in refused(without)


def test_inject_of_dependency_injector_works_as_ever() -> None:
    app = RocketApp("shop")

    @app.subscribe("orders")
    @inject
    def handle(message: Message, database: Database = Provide[Shop.database]) -> str:
        return database.url

    container = Shop()
    container.wire(modules=[__name__])
    try:
        assert call_of(app)(message()) in ("memory", handle(message()))
    finally:
        container.unwire()


def test_what_is_no_container_is_refused() -> None:
    with pytest.raises(SetupError, match="is not a dependency_injector container"):
        RocketApp("shop", container={"database": Database()})


def test_a_container_that_does_not_derive_from_ours_replaces_nothing() -> None:
    app = RocketApp("shop", container=Shop())

    @app.subscribe("orders")
    async def handle(message: Message) -> None: ...

    with TestApp(app) as t:
        t.publish("orders", {})
        t.settle()
        assert len(t.handled) == 1


async def test_what_a_derived_container_declares_is_used_also_overridden_and_what_it_leaves_open_is_ours() -> None:
    mine, other, ours, seen = SystemClock(), SystemClock(), SystemClock(), list[Any]()

    class Producer(NotedProducer):
        def __init__(self, diary: Diary, *, clock: Any, **more: Any) -> None:
            super().__init__(diary, **more)
            seen.append(clock)

    class Mine(Noted):
        clock = providers.Object(mine)

    async def clock_with(container: Any) -> Any:
        producer = partial(Producer, Diary())
        lifecycle = lifecycle_of(RocketApp("shop", container=container), clock=ours, producer=producer)
        await lifecycle.start()
        await lifecycle.stop(asyncio.Event())
        return seen.pop()

    container: Any = Mine(diary=Diary())
    assert await clock_with(container) is mine
    with container.clock.override(providers.Object(other)):
        assert await clock_with(container) is other
    assert await clock_with(Noted(diary=Diary())) is ours


async def test_resources_live_as_long_as_the_app_runs() -> None:
    diary = Diary()

    def open_pool() -> Iterator[str]:
        diary.note("pool opens")
        yield "pool"
        diary.note("pool closes")

    class Mine(Noted):
        pool = providers.Resource(open_pool)

    app = RocketApp("shop", container=Mine(diary=diary))
    lifecycle = lifecycle_of(app)
    await lifecycle.start()
    assert diary.lines[0] == "pool opens"
    await lifecycle.stop(asyncio.Event())
    assert diary.lines[-1] == "pool closes"
