"""What a container provides to handlers: opened and closed per message, with their failures."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from dependency_injector import containers, providers
from dependency_injector.wiring import Provide

from rocketapp import Message, Retry, RocketApp, SetupError
from rocketapp.app.publishing import Publishing
from tests.unit.app.given import NotRunning, bound, call_of, message

DIARY: list[str] = []


class Database:
    """Opened once, with the app."""


class Session:
    def __init__(self, database: Database) -> None:
        self.database = database


def open_session(database: Database) -> Iterator[Session]:
    DIARY.append("begin")
    try:
        yield Session(database)
    except BaseException as error:
        DIARY.append(f"roll back after {type(error).__name__}")
        raise
    DIARY.append("commit")


async def open_session_async(database: Database) -> AsyncIterator[Session]:
    DIARY.append("begin")
    try:
        yield Session(database)
    except BaseException as error:
        await asyncio.sleep(0)
        DIARY.append(f"roll back after {type(error).__name__}")
        raise
    await asyncio.sleep(0)
    DIARY.append("commit")


def swallow(database: Database) -> Iterator[Session]:
    try:
        yield Session(database)
    except ValueError:
        DIARY.append("swallowed")


def fail_at_the_end() -> Iterator[None]:
    yield
    raise OSError("commit failed")


async def open_database() -> AsyncIterator[Database]:
    yield Database()


class Parts(containers.DeclarativeContainer):
    database = providers.Singleton(Database)
    opened = providers.Resource(open_database)
    session = providers.Factory(open_session, database)
    session_async = providers.Factory(open_session_async, database)
    swallowing = providers.Factory(swallow, database)
    failing = providers.Factory(fail_at_the_end)
    of_opened = providers.Factory(Session, opened)
    nested = providers.Factory(Session, session)


class Here(NotRunning):
    """An app that runs on the test's loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()


@pytest.fixture(autouse=True)
def diary() -> list[str]:
    DIARY.clear()
    return DIARY


def scoped(app: RocketApp) -> Callable[[Any], Any]:
    here = Here()
    return call_of(app, Publishing(lambda: here))


async def result_of(app: RocketApp) -> Any:
    """What the handler returns for a message, called where a consumer would call it."""
    one, call = bound(app), scoped(app)
    return await call(message()) if one.subscription.is_async else await asyncio.to_thread(call, message())


def handler(app: RocketApp, provider: str, works: Callable[[Any], Any], *, is_async: bool) -> None:
    async def on_the_loop(message: Message, session: Session = Provide[provider]) -> Any:
        await asyncio.sleep(0)
        return works(session)

    def in_a_thread(message: Message, session: Session = Provide[provider]) -> Any:
        return works(session)

    app.subscribe("orders")(on_the_loop if is_async else in_a_thread)


BOTH = pytest.mark.parametrize(
    ("provider", "is_async"), [("session", True), ("session", False), ("session_async", True)]
)


@BOTH
async def test_a_generator_is_opened_for_a_message_and_closed_after_it(provider: str, is_async: bool) -> None:
    app = RocketApp("shop", container=Parts())
    handler(app, provider, lambda session: DIARY.append(type(session.database).__name__), is_async=is_async)
    await result_of(app)
    await result_of(app)
    assert DIARY == ["begin", "Database", "commit"] * 2


@BOTH
async def test_a_failure_goes_through_it(provider: str, is_async: bool) -> None:
    def fails(session: Session) -> None:
        raise Retry(after=5)

    app = RocketApp("shop", container=Parts())
    handler(app, provider, fails, is_async=is_async)
    with pytest.raises(Retry):
        await result_of(app)
    assert DIARY == ["begin", "roll back after Retry"]


@pytest.mark.parametrize("provider", ["session", "session_async"])
async def test_a_cancelled_handler_closes_it_too(provider: str) -> None:
    app, never = RocketApp("shop", container=Parts()), asyncio.Event()

    @app.subscribe("orders")
    async def handle(message: Message, session: Session = Provide[provider]) -> None:
        DIARY.append("waits")
        await never.wait()

    task = asyncio.ensure_future(result_of(app))
    while "waits" not in DIARY:  # noqa: ASYNC110 - the handler has no event
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert DIARY == ["begin", "waits", "roll back after CancelledError"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_it_cannot_turn_a_failure_into_success(is_async: bool) -> None:
    def fails(session: Session) -> None:
        raise ValueError("no money")

    app = RocketApp("shop", container=Parts())
    handler(app, "swallowing", fails, is_async=is_async)
    with pytest.raises(ValueError, match="no money"):
        await result_of(app)
    assert DIARY == ["swallowed"]


@pytest.mark.parametrize("is_async", [True, False])
async def test_a_failure_while_it_is_closed_fails_the_attempt(is_async: bool) -> None:
    app = RocketApp("shop", container=Parts())
    handler(app, "failing", lambda session: None, is_async=is_async)
    with pytest.raises(OSError, match="commit failed"):
        await result_of(app)


@pytest.mark.parametrize("was_asked", [True, False])
@pytest.mark.parametrize("is_async", [True, False])
async def test_an_override_takes_its_place(is_async: bool, was_asked: bool) -> None:
    container = Parts()
    app, fake = RocketApp("shop", container=container), Session(Database())
    handler(app, "session", lambda session: session is fake, is_async=is_async)
    if was_asked:
        assert await result_of(app) is False
        DIARY.clear()
    with container.session.override(providers.Object(fake)):
        assert await result_of(app) is True
    assert DIARY == []


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(("provider", "kind"), [("opened", Database), ("of_opened", Session)])
async def test_a_resource_that_opens_asynchronously_gives_its_opened_value(
    provider: str, kind: type, is_async: bool
) -> None:
    container = Parts()
    await container.init_resources()  # type: ignore[misc]
    app = RocketApp("shop", container=container)
    handler(app, provider, lambda value: value, is_async=is_async)
    value = await result_of(app)
    assert type(value) is kind
    assert isinstance(getattr(value, "database", value), Database)
    await container.shutdown_resources()  # type: ignore[misc]


async def test_an_asynchronous_generator_needs_an_async_handler() -> None:
    app = RocketApp("shop", container=Parts())
    handler(app, "session_async", lambda session: None, is_async=False)
    with pytest.raises(SetupError, match="its provider is asynchronous, so the function must be `async def`"):
        scoped(app)


def test_a_provider_that_depends_on_a_generator_is_refused() -> None:
    app = RocketApp("shop", container=Parts())
    with pytest.raises(SetupError, match="'nested' of the container depends on the generator open_session"):
        handler(app, "nested", lambda session: None, is_async=True)
