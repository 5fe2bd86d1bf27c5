"""The plugin: handlers whose effect, mark and outbox are one transaction of the user's database."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, async_sessionmaker
from sqlalchemy.orm import Session, sessionmaker

from rocketapp import Message, RocketAppError
from rocketapp.plugin import CheckedArgument, PluginError, Subscription, Surface, Tasks, Wrapper, hookimpl, keys_of
from rocketapp_sqlalchemy import marking
from rocketapp_sqlalchemy.once import Once, current, engine_of
from rocketapp_sqlalchemy.tables import metadata

log: logging.Logger = logging.getLogger("rocketapp.sqlalchemy")
_SWEEP = 600.0
"""Seconds between two removals of expired marks, when the last one has removed them all."""
_NEXT_SWEEP = 0.1
"""Seconds until the next one when it has not."""
_MOST_SWEPT = 1_000
"""Marks removed in one transaction: SQLite's handlers wait for it."""


class InDatabase:
    """What `idempotent=` gets: the marks are in this database, and the key is made by this function."""

    def __init__(self, database: Database, key: Callable[[Message], str] | None) -> None:
        self.database: Database = database
        self.key: Callable[[Message], str] | None = key

    def __repr__(self) -> str:
        return repr(self.database)

    keeps_marks: bool = True
    """It needs no store of marks."""

    def __call__(self, message: Message) -> str:
        """The user's key; `idempotent=` asks for a function."""
        raise RocketAppError("give the Database to the app as a plugin: RocketApp(plugins=[database])")


class Database:
    """One database, by its engines: an Engine for sync handlers, an AsyncEngine for async ones, or both.

    keep: seconds for which a handled message is remembered.
    create_tables: create those that are missing when the app starts; False leaves them to migrations, which find
        them in `rocketapp_sqlalchemy.tables.metadata`.
    """

    def __init__(self, *engines: Engine | AsyncEngine, keep: float = 604_800.0, create_tables: bool = True) -> None:
        for engine in engines:
            if not isinstance(engine, Engine | AsyncEngine):
                raise TypeError(f"Database({engine!r}): give engines, of create_engine or create_async_engine")
        if not engines:
            raise TypeError("Database() needs an engine: of create_engine, create_async_engine, or both")
        self.engines = engines
        self.once: InDatabase = InDatabase(self, None)
        """`subscribe(..., idempotent=database.once)`: copies are told by message id, tag and body."""
        self._keep, self._create_tables = keep, create_tables
        self._sweeps: dict[Surface, Tasks] = {}
        """What removes expired marks, for each app that runs."""
        self.outbox: Callable[..., None] | None = None
        """`Outbox.publish` of the app whose handlers are being wrapped."""

    def __repr__(self) -> str:
        return f"<Database {self.engines[0].url!r}>"  # SQLAlchemy hides the password

    def once_by(self, key: Callable[[Message], str]) -> InDatabase:
        """`subscribe(..., idempotent=database.once_by(lambda message: ...))`: copies have the same key."""
        return InDatabase(self, key)

    @hookimpl
    def app_setup(self) -> None:
        self.outbox = None

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper | None:
        wanted = subscription.idempotent
        if not isinstance(wanted, InDatabase) or not _is_of(self, subscription):
            return None
        engine = engine_of(self.engines, is_async=subscription.is_async)
        if engine is None:
            kind, maker = ("async", "create_async_engine") if subscription.is_async else ("sync", "create_engine")
            raise PluginError(
                repr(self),
                f"{subscription.handler_name} ({subscription.place}) is {kind}, and this database has no engine for "
                f"it: give it one more, Database(..., {maker}(...))",
            )
        once = Once(subscription, keys_of(subscription, wanted.key))
        write = None if self.outbox is None else partial(_write, self.outbox)
        if subscription.is_async:
            for_async = once.for_async(async_sessionmaker(engine, expire_on_commit=False))
            return Wrapper(layer="database", write=write, for_async=for_async)
        for_sync = once.for_sync(sessionmaker(engine, expire_on_commit=False))
        return Wrapper(layer="database", write=write, for_sync=for_sync)

    @hookimpl
    def argument_provider(self, kind: Any) -> Callable[[], Any] | None:
        """Handlers ask for Session, AsyncSession, Connection or AsyncConnection."""
        provide = _PROVIDED.get(kind) if isinstance(kind, type) else None
        return None if provide is None else CheckedArgument(provide, partial(self._problem, kind))

    def _problem(self, kind: type[Any], subscription: Subscription) -> str | None:
        """Why this handler cannot have a session or connection of this kind."""
        if not _is_of(self, subscription):
            return "a transaction is missing: say idempotent=database.once on this handler"
        fitting = _FOR_ASYNC if subscription.is_async else _FOR_SYNC
        if kind in fitting:
            return None
        mine, other = ("async", "sync") if subscription.is_async else ("sync", "async")
        wanted = fitting[0] if issubclass(kind, Session | AsyncSession) else fitting[1]
        return f"{kind.__name__} is for {other} handlers, and this one is {mine}: ask for {wanted.__name__}"

    @hookimpl
    async def app_startup(self, app: Surface) -> None:
        await self.create_missing_tables()
        if any(_is_of(self, subscription) for subscription in app.subscriptions):
            for engine in self.engines:
                await _trying_again(partial(_check, engine))
        self._sweeps[app] = Tasks()
        self._sweeps[app].start(self._sweep(), "expired marks")

    @hookimpl
    async def app_shutdown(self, app: Surface) -> None:
        await self._sweeps.pop(app).close()

    async def create_missing_tables(self) -> None:
        """Unless migrations do."""
        if self._create_tables:
            await _trying_again(lambda: self.run(metadata.create_all))

    def serves(self, app: Surface) -> bool:
        """Whether this app runs with the database among its plugins."""
        return app in self._sweeps

    async def run(self, work: Callable[[Connection], Any]) -> Any:
        """Do this in a transaction of its own; in a thread, where there is an engine for that."""
        return await _committed(engine_of(self.engines, is_async=False) or self.engines[0], work)

    def _remove_expired(self, connection: Connection) -> int:
        return marking.remove_expired(connection, keep=self._keep, most=_MOST_SWEPT)

    async def _sweep(self) -> None:
        pause = _SWEEP
        while True:
            await asyncio.sleep(pause)
            pause = _SWEEP
            try:
                if await self.run(self._remove_expired) == _MOST_SWEPT:
                    pause = _NEXT_SWEEP
            except Exception as error:
                log.warning("expired marks were not removed: %s: %s", type(error).__name__, error)


async def _committed(engine: Engine | AsyncEngine, work: Callable[[Connection], Any]) -> Any:
    """What the work returns, when it is committed; a sync engine works in a thread."""

    def run(connection: Connection) -> Any:
        result = work(connection)
        connection.commit()
        return result

    def run_in_thread(engine: Engine) -> Any:
        with engine.connect() as connection:
            return run(connection)

    if isinstance(engine, Engine):
        return await asyncio.to_thread(run_in_thread, engine)
    # The loop of `rocketapp.testing` lets no time pass meanwhile, as it does while threads work; others need not know.
    waiting = getattr(asyncio.get_running_loop(), "waiting", contextlib.nullcontext)
    with waiting():
        async with engine.connect() as connection:
            return await connection.run_sync(run)


async def _trying_again(work: Callable[[], Awaitable[None]]) -> None:
    """Several processes may start at once: one that loses the race finds the tables at its next try."""
    for tries_left in (2, 1, 0):
        try:
            await work()
            return
        except SQLAlchemyError:
            if not tries_left:
                raise


async def _check(engine: Engine | AsyncEngine) -> None:
    """Raises PluginError unless a rollback takes a mark back: a failed attempt would count as done."""
    if not await _committed(engine, marking.is_undone_by_rollback):
        raise PluginError(
            f"<Database {engine.url!r}>",
            "a rollback leaves what was written: give an engine with transactions, without "
            'isolation_level="AUTOCOMMIT", and tables of a kind that has them',
        )


def _write(outbox: Callable[..., None], topic: str, body: Any, options: Mapping[str, Any]) -> None:
    """A message that is sent when the transaction of this call is committed."""
    outbox(current.get(), topic, body, **options)


def _is_of(database: Database, subscription: Subscription) -> bool:
    return isinstance(subscription.idempotent, InDatabase) and subscription.idempotent.database is database


def _running() -> Any:
    """The session of this call. Raises RocketAppError where there is none, as in a function at the start."""
    session = current.get()
    if session is None:
        raise RocketAppError("a transaction is missing: say idempotent=database.once on this handler")
    return session


_PROVIDED: Mapping[type[Any], Callable[[], Any]] = {
    Session: _running,
    AsyncSession: _running,
    Connection: lambda: _running().connection(),
    AsyncConnection: lambda: _running().connection(),
}
_FOR_SYNC, _FOR_ASYNC = (Session, Connection), (AsyncSession, AsyncConnection)
