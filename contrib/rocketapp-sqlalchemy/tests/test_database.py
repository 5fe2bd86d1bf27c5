"""One transaction for effect and mark: against SQLite and PostgreSQL, with sync and async handlers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, create_engine, insert, select
from sqlalchemy.engine import Connection
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from rocketapp import DeadLetter, Message, Outcomes, Retry, RocketApp, SetupError
from rocketapp.plugin import PluginError
from rocketapp.testing import TestApp
from rocketapp_sqlalchemy import Database, marking
from rocketapp_sqlalchemy.tables import marks

DAY = 86_400.0
effects = Table("effects", MetaData(), Column("number", Integer, nullable=False))


@pytest.fixture
def database(engine: Engine, async_engine: AsyncEngine) -> Database:
    effects.create(engine)
    return Database(engine, async_engine)


def stored(engine: Engine) -> list[int]:
    """The effects that are committed."""
    with engine.connect() as connection:
        return sorted(connection.execute(select(effects.c.number)).scalars())


def marked(engine: Engine) -> int:
    with engine.connect() as connection:
        return len(connection.execute(select(marks)).all())


def by_body(message: Message) -> str:
    return message.text()


class Shop:
    """An app whose handler writes an effect, and then does what the test says."""

    def __init__(self, database: Database, *, is_async: bool, **options: Any) -> None:
        self.app = RocketApp("shop", plugins=[database])
        self.then: Callable[[Message], Any] = lambda message: None
        options = {"idempotent": database.once_by(by_body), **options}
        if is_async:

            @self.app.subscribe("orders", **options)
            async def take(message: Message, session: AsyncSession) -> Any:
                await session.execute(insert(effects).values(number=int(message.text())))
                return self.then(message)
        else:

            @self.app.subscribe("orders", **options)
            def take_sync(message: Message, session: Session) -> Any:
                session.execute(insert(effects).values(number=int(message.text())))
                return self.then(message)


@pytest.fixture(params=["async", "sync"])
def shop(request: pytest.FixtureRequest, database: Database) -> Shop:
    return Shop(database, is_async=request.param == "async")


def test_the_effect_of_copies_is_there_once(shop: Shop, engine: Engine) -> None:
    with TestApp(shop.app) as t:
        t.publish_many("orders", ["1", "1", "2", "1", "2"])
        t.settle()
        assert len(t.handled) == 5
    assert stored(engine) == [1, 2]
    assert marked(engine) == 2


def test_an_attempt_that_raises_leaves_neither_effect_nor_mark(shop: Shop, engine: Engine) -> None:
    def then(message: Message) -> None:
        assert stored(engine) == []
        if message.attempt == 1:
            raise ValueError("after the effect")

    shop.then = then
    with TestApp(shop.app) as t:
        t.publish("orders", "1")
        t.advance(1)
        assert (stored(engine), marked(engine)) == ([], 0)
        t.settle()
        assert len(t.retried) == 1
    assert (stored(engine), marked(engine)) == ([1], 1)


@pytest.mark.parametrize("outcome", [Retry(), DeadLetter("no")], ids=["retry", "dead letter"])
def test_a_returned_outcome_that_is_not_done_leaves_neither(shop: Shop, engine: Engine, outcome: Any) -> None:
    shop.then = lambda message: outcome if message.attempt == 1 else None
    with TestApp(shop.app) as t:
        t.publish("orders", "1")
        t.advance(1)
        assert (stored(engine), marked(engine)) == ([], 0)


def test_copies_at_the_same_time_wait_for_each_other(database: Database, engine: Engine) -> None:
    shop = Shop(database, is_async=True)
    with TestApp(shop.app) as t:
        for number in range(30):
            t.publish("orders", str(number % 3))
        t.settle()
        assert len(t.handled) + len(t.dead) == 30
    assert stored(engine) == [0, 1, 2]


def test_without_a_key_function_copies_are_told_by_id_and_body(database: Database, engine: Engine) -> None:
    shop = Shop(database, is_async=True, idempotent=database.once)
    with TestApp(shop.app) as t:
        t.publish_many("orders", ["1", "2"])
        t.publish("orders", "1")
        t.settle()
    assert stored(engine) == [1, 1, 2]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_a_connection_is_that_of_the_transaction(database: Database, engine: Engine, is_async: bool) -> None:
    app = RocketApp("shop", plugins=[database])
    if is_async:

        @app.subscribe("orders", idempotent=database.once)
        async def take(message: Message, connection: AsyncConnection) -> None:
            await connection.execute(insert(effects).values(number=1))
            if message.attempt == 1:
                raise ValueError
    else:

        @app.subscribe("orders", idempotent=database.once)
        def take_sync(message: Message, connection: Connection) -> None:
            connection.execute(insert(effects).values(number=1))
            if message.attempt == 1:
                raise ValueError

    with TestApp(app) as t:
        t.publish("orders", "1")
        t.settle()
    assert stored(engine) == [1]


class BatchShop:
    """An app whose batch handler writes an effect per message."""

    def __init__(self, database: Database, *, is_async: bool) -> None:
        self.app = RocketApp("shop", plugins=[database])
        self.then: Callable[[list[Message]], Any] = lambda messages: None
        self.given: list[list[str]] = []
        key = database.once_by(by_body)
        if is_async:

            @self.app.subscribe("orders", batch=10, idempotent=key)
            async def take(messages: list[Message], session: AsyncSession) -> Any:
                await session.execute(insert(effects), self._rows(messages))
                return self.then(messages)
        else:

            @self.app.subscribe("orders", batch=10, idempotent=key)
            def take_sync(messages: list[Message], session: Session) -> Any:
                session.execute(insert(effects), self._rows(messages))
                return self.then(messages)

    def _rows(self, messages: list[Message]) -> list[dict[str, int]]:
        self.given.append([message.text() for message in messages])
        return [{"number": int(message.text())} for message in messages]


@pytest.fixture(params=["async", "sync"])
def batch_shop(request: pytest.FixtureRequest, database: Database) -> BatchShop:
    return BatchShop(database, is_async=request.param == "async")


def test_a_batch_leaves_out_what_was_done(batch_shop: BatchShop, engine: Engine) -> None:
    with TestApp(batch_shop.app) as t:
        t.publish_many("orders", ["1", "2", "1"], order_key="one queue")
        t.settle()
        t.publish_many("orders", ["2", "3"], order_key="one queue")
        t.settle()
        assert len(t.handled) == 5
    assert batch_shop.given == [["1", "2"], ["3"]]
    assert stored(engine) == [1, 2, 3]


def test_a_batch_that_raises_is_undone_whole(batch_shop: BatchShop, engine: Engine) -> None:
    def then(messages: list[Message]) -> None:
        if messages[0].attempt == 1:
            raise ValueError("after the effects")

    batch_shop.then = then
    with TestApp(batch_shop.app) as t:
        t.publish_many("orders", ["1", "2"], order_key="one queue")
        t.advance(1)
        assert (stored(engine), marked(engine)) == ([], 0)
        t.settle()
    assert (stored(engine), marked(engine)) == ([1, 2], 2)


def test_single_messages_of_a_batch_may_stay_undone(batch_shop: BatchShop, engine: Engine) -> None:
    batch_shop.then = lambda messages: Outcomes({one: DeadLetter("no") for one in messages if one.text() == "2"})
    with TestApp(batch_shop.app) as t:
        t.publish_many("orders", ["1", "2", "2"], order_key="one queue")
        t.settle()
        assert len(t.dead) == 2
    assert marked(engine) == 1


def test_of_a_batch_only_the_message_fails_whose_key_function_raised(database: Database, engine: Engine) -> None:
    app, given = RocketApp("shop", plugins=[database]), list[str]()

    @app.subscribe("orders", batch=10, retries=1, idempotent=database.once_by(lambda one: one.properties["number"]))
    def take(messages: list[Message], session: Session) -> None:
        given.extend(message.text() for message in messages)
        session.execute(insert(effects), [{"number": int(message.text())} for message in messages])

    with TestApp(app) as t:
        for body, properties in (("1", {"number": "1"}), ("2", {}), ("3", {"number": "3"})):
            t.publish("orders", body, properties=properties, order_key="one queue")
        t.settle()
        assert [(dead.message.text(), dead.reason[:13]) for dead in t.dead] == [("2", "Retry: KeyErr")]
    assert (given, stored(engine), marked(engine)) == (["1", "3"], [1, 3], 2)


def test_of_copies_in_a_batch_the_first_is_handed_over(database: Database) -> None:
    app = RocketApp("shop", plugins=[database])
    handed: list[str] = []

    @app.subscribe("orders", batch=10, idempotent=database.once_by(lambda message: message.properties["order"]))
    def take(messages: list[Message], session: Session) -> None:
        handed.extend(message.text() for message in messages)

    with TestApp(app) as t:
        for body in ("first", "second"):
            t.publish("orders", body, properties={"order": "17"}, order_key="17")
        t.settle()
    assert handed == ["first"]


def test_a_handler_without_an_engine_of_its_kind_is_refused_at_start(engine: Engine) -> None:
    database = Database(engine)
    effects.create(engine)
    app = Shop(database, is_async=True).app
    problem = r"take .*is async, and this database has no engine for it: .*create_async"
    with pytest.raises(PluginError, match=problem), TestApp(app):
        pass


@pytest.mark.parametrize("options", [{}, {"idempotent": True}], ids=["not idempotent", "by another store"])
def test_a_session_without_a_transaction_is_refused_at_start(options: dict[str, Any]) -> None:
    app = RocketApp("shop", plugins=[Database(create_engine("sqlite://"))])

    @app.subscribe("orders", **options)
    def take(message: Message, session: Session) -> None: ...

    problem = r"take: argument 'session': a transaction is missing: say idempotent=database\.once on this handler"
    with pytest.raises(SetupError, match=problem) as caught, TestApp(app):
        pass
    assert caught.value.place.startswith(f"{__file__}:")


@pytest.mark.parametrize(
    ("kind", "is_async", "mend"),
    [
        (AsyncSession, False, "AsyncSession is for async handlers, and this one is sync: ask for Session"),
        (AsyncConnection, False, "AsyncConnection is for async handlers, and this one is sync: ask for Connection"),
        (Session, True, "Session is for sync handlers, and this one is async: ask for AsyncSession"),
        (Connection, True, "Connection is for sync handlers, and this one is async: ask for AsyncConnection"),
    ],
)
def test_a_session_of_the_other_kind_is_refused_at_start(kind: Any, is_async: bool, mend: str) -> None:
    database = Database(create_engine("sqlite://"), create_async_engine("sqlite+aiosqlite://"))
    app = RocketApp("shop", plugins=[database])

    async def take(message: Message, session: kind) -> None: ...

    def take_sync(message: Message, session: kind) -> None: ...

    app.subscribe("orders", idempotent=database.once)(take if is_async else take_sync)
    with pytest.raises(SetupError) as caught, TestApp(app):
        pass
    assert caught.value.problem.endswith(f"argument 'session': {mend}")
    assert "take" in caught.value.problem
    assert caught.value.place.startswith(f"{__file__}:")


def test_two_databases_in_one_app_are_refused() -> None:
    app = RocketApp("shop", plugins=[Database(create_engine("sqlite://")), Database(create_engine("sqlite://"))])
    with pytest.raises(PluginError, match="Database: is registered twice"), TestApp(app):
        pass


@pytest.mark.parametrize("others", [False, True], ids=["of none", "of another app"])
def test_a_handler_whose_database_is_not_among_the_plugins_is_refused(database: Database, others: bool) -> None:
    if others:
        with TestApp(RocketApp("other", plugins=[database])):
            pass
    app = RocketApp("shop")

    @app.subscribe("orders", idempotent=database.once)
    async def take(message: Message) -> None: ...

    with pytest.raises(SetupError, match=r"idempotent= needs <Database .*>, which is not among the app's plugins"):
        TestApp(app).__enter__()


def test_expired_marks_are_removed(engine: Engine, async_engine: AsyncEngine) -> None:
    effects.create(engine)
    shop = Shop(Database(engine, async_engine, keep=0.0), is_async=True)
    with TestApp(shop.app) as t:
        t.publish("orders", "1")
        t.settle()
        assert marked(engine) == 1
        t.advance(minutes=11)
    assert marked(engine) == 0


def test_more_expired_marks_than_one_look_removes_are_gone_soon(
    engine: Engine, async_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketapp_sqlalchemy.database._MOST_SWEPT", 2)
    effects.create(engine)
    shop = Shop(Database(engine, async_engine, keep=0.0), is_async=True)
    with TestApp(shop.app) as t:
        t.publish_many("orders", [str(number) for number in range(9)])
        t.settle()
        t.advance(minutes=11)
    assert marked(engine) == 0


def test_a_host_whose_clock_is_ahead_removes_no_mark_too_early(
    engine: Engine, async_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    effects.create(engine)
    shop = Shop(Database(engine, async_engine, keep=DAY), is_async=True)
    with TestApp(shop.app) as t:
        t.publish("orders", "1")
        t.settle()
        ahead = marking.now() + 2 * DAY
        monkeypatch.setattr("rocketapp_sqlalchemy.marking.now", lambda: ahead)
        t.advance(minutes=11)
    assert marked(engine) == 1


def test_an_engine_without_transactions_is_refused_at_start(urls: Any, engine: Engine) -> None:
    effects.create(engine)
    database = Database(create_engine(urls.sync, poolclass=NullPool, isolation_level="AUTOCOMMIT"))
    app = Shop(database, is_async=False).app
    with pytest.raises(PluginError, match="a rollback leaves what was written"), TestApp(app):
        pass
    assert marked(engine) == 0


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_what_a_handler_writes_in_a_transaction_of_its_own_is_refused(
    database: Database, engine: Engine, is_async: bool, end: str
) -> None:
    app = RocketApp("shop", plugins=[database])
    if is_async:

        @app.subscribe("orders", idempotent=database.once_by(by_body), retries=0)
        async def take(message: Message, session: AsyncSession) -> None:
            await getattr(session, end)()
            await session.execute(insert(effects).values(number=1))
    else:

        @app.subscribe("orders", idempotent=database.once_by(by_body), retries=0)
        def take_sync(message: Message, session: Session) -> None:
            getattr(session, end)()
            session.execute(insert(effects).values(number=1))

    with TestApp(app) as t:
        t.publish("orders", "1")
        t.settle()
        assert "session.begin_nested()" in t.dead[0].reason
    assert stored(engine) == []


def test_a_handler_that_commits_itself_commits_its_mark_too(database: Database, engine: Engine) -> None:
    app = RocketApp("shop", plugins=[database])

    @app.subscribe("orders", idempotent=database.once_by(by_body), retries=0)
    def take(message: Message, session: Session) -> None:
        session.execute(insert(effects).values(number=1))
        session.commit()

    with TestApp(app) as t:
        t.publish_many("orders", ["1", "1"])
        t.settle()
        assert not t.dead
    assert (stored(engine), marked(engine)) == ([1], 1)


async def test_work_beside_handlers_is_done_in_a_thread_where_an_engine_is_for_that(
    engine: Engine, async_engine: AsyncEngine
) -> None:
    worked_in = await Database(async_engine, engine).run(lambda _: threading.current_thread())
    assert worked_in is not threading.main_thread()


def test_what_may_fail_has_a_savepoint(database: Database, engine: Engine) -> None:
    app = RocketApp("shop", plugins=[database])

    @app.subscribe("orders", idempotent=database.once_by(by_body))
    def take(message: Message, session: Session) -> None:
        session.execute(insert(effects).values(number=1))
        try:
            with session.begin_nested():
                session.execute(insert(marks).values(key=None, done_at=0.0))
        except IntegrityError:
            session.execute(insert(effects).values(number=2))

    with TestApp(app) as t:
        t.publish_many("orders", ["1", "1"])
        t.settle()
    assert (stored(engine), marked(engine)) == ([1, 2], 1)


def test_what_is_no_engine_is_refused() -> None:
    with pytest.raises(TypeError, match="give engines, of create_engine"):
        Database("sqlite://")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="needs an engine"):
        Database()
