"""Where the transaction stands around a handler: what leaves the process leaves after it, and a plain value commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Column, Engine, Integer, MetaData, Table, event, insert, select
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from rocketapp import DeadLetter, Message, NoReply, Outcomes, Policy, Retry, RocketApp, SetupError, Skip
from rocketapp.testing import TestApp
from rocketapp_sqlalchemy import Database, Outbox
from rocketapp_sqlalchemy.tables import marks, outbox

effects = Table("effects", MetaData(), Column("number", Integer, nullable=False))
KINDS = pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])


@pytest.fixture
def database(engine: Engine, async_engine: AsyncEngine) -> Database:
    effects.create(engine)
    return Database(engine, async_engine)


def rows(engine: Engine, table: Table) -> int:
    with engine.connect() as connection:
        return len(connection.execute(select(table)).all())


class LostCommits:
    """A database that refuses its commits after an effect, as often as it is told."""

    def __init__(self, database: Database, count: int) -> None:
        self.left = count
        for engine in database.engines:
            real = engine.sync_engine if isinstance(engine, AsyncEngine) else engine
            event.listen(real, "after_cursor_execute", self._executed)
            event.listen(real, "commit", self._commits)

    def _executed(self, connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        if "INTO effects" in statement:
            connection.info["wrote an effect"] = True

    def _commits(self, connection: Connection) -> None:
        if self.left and connection.info.pop("wrote an effect", False):
            self.left -= 1
            raise OSError("the connection was lost at the commit")


def booking(
    app: RocketApp, then: Callable[[Message], Any], *, is_async: bool, publishes: bool = False, **options: Any
) -> None:
    """Subscribe a handler that writes an effect and then returns, or raises, what the test says."""

    async def take(message: Message, session: AsyncSession) -> dict[str, Any]:
        await session.execute(insert(effects).values(number=1))
        return then(message)  # type: ignore[no-any-return]

    def take_sync(message: Message, session: Session) -> dict[str, Any]:
        session.execute(insert(effects).values(number=1))
        return then(message)  # type: ignore[no-any-return]

    function = take if is_async else take_sync
    app.subscribe("orders", **options)(app.publishes("bills", tag="new")(function) if publishes else function)


# What leaves the process.


@KINDS
def test_an_answer_leaves_after_the_commit(database: Database, engine: Engine, is_async: bool) -> None:
    app = RocketApp("shop", plugins=[database])
    booking(app, lambda message: {"booked": True}, is_async=is_async, idempotent=database.once, retries=0)
    lost = LostCommits(database, 1)
    with TestApp(app) as t:
        with pytest.raises(NoReply):
            t.request("orders", "1")
        assert (lost.left, rows(engine, effects)) == (0, 0)
        assert t.request("orders", "2").json() == {"booked": True}
        assert rows(engine, effects) == 1


@KINDS
def test_a_copy_of_a_request_gets_no_answer(database: Database, engine: Engine, is_async: bool) -> None:
    app = RocketApp("shop", plugins=[database])
    key = database.once_by(lambda message: message.text())
    booking(app, lambda message: {"booked": True}, is_async=is_async, idempotent=key)
    with TestApp(app) as t:
        assert t.request("orders", "1").json() == {"booked": True}
        with pytest.raises(NoReply):
            t.request("orders", "1")
    assert rows(engine, effects) == 1


@KINDS
def test_a_publication_is_written_into_the_outbox_within_the_transaction(
    database: Database, engine: Engine, is_async: bool
) -> None:
    app, bills = RocketApp("shop", plugins=[database, Outbox(database)]), list[Message]()
    booking(app, lambda message: {"order": 1}, is_async=is_async, publishes=True, idempotent=database.once)

    @app.subscribe("bills")
    async def bill(message: Message) -> None:
        bills.append(message)

    lost = LostCommits(database, 1)
    with TestApp(app) as t:
        t.publish("orders", "1", properties={"rocketapp.correlation_id": "c1"})
        t.settle()
        assert (lost.left, len(t.retried)) == (0, 1)
    assert [(one.json(), one.tag, one.properties["rocketapp.correlation_id"]) for one in bills] == [
        ({"order": 1}, "new", "c1")
    ]
    assert (rows(engine, effects), rows(engine, outbox)) == (1, 0)


@KINDS
def test_the_outbox_of_another_app_on_the_same_database_is_not_this_app_s(database: Database, is_async: bool) -> None:
    app, other = RocketApp("shop", plugins=[database]), RocketApp("other", plugins=[database, Outbox(database)])
    for one in (app, other):
        booking(one, lambda message: {}, is_async=is_async, publishes=True, idempotent=database.once)
    with TestApp(other), pytest.raises(SetupError, match=r"publishes: .*Outbox\(database\)"), TestApp(app):
        pass


@KINDS
def test_a_publication_without_an_outbox_is_refused_at_its_line(database: Database, is_async: bool) -> None:
    app = RocketApp("shop", plugins=[database])
    booking(app, lambda message: {}, is_async=is_async, publishes=True, idempotent=database.once)
    with pytest.raises(SetupError, match=r"publishes: .*Outbox\(database\)") as caught, TestApp(app):
        pass
    assert caught.value.place.startswith(f"{__file__}:")


def test_a_publication_that_no_outbox_can_write_is_refused(database: Database) -> None:
    app = RocketApp("shop", plugins=[database, Outbox(database)])

    @app.subscribe("orders", idempotent=database.once)
    @app.publishes("bills", timeout=2)
    async def take(message: Message) -> str:
        return "bill"

    with pytest.raises(SetupError, match=r"publishes: timeout= .* outbox"), TestApp(app):
        pass


# What commits: a plain value, and nothing else.


@KINDS
@pytest.mark.parametrize("how", ["returned", "raised", "mapped", "policy"])
def test_every_outcome_undoes_effect_and_mark_however_it_is_said(
    database: Database, engine: Engine, is_async: bool, how: str
) -> None:
    for outcome in (Skip("no"), Retry(), DeadLetter("no")):
        calls = outcome_of_calls(database, outcome, how, is_async=is_async)
        assert (rows(engine, effects), rows(engine, marks)) == (0, 0)
        assert calls == ["1", "2"]


def outcome_of_calls(database: Database, outcome: Any, how: str, *, is_async: bool) -> list[str]:
    """The messages with which the handler was called: two copies, of which none leaves a mark."""
    app, calls = RocketApp("shop", plugins=[database]), list[str]()
    policy = Policy(on={KeyError: type(outcome)}) if how == "policy" else None
    if how == "mapped":
        app.exception_handler(KeyError)(lambda message, error: outcome)

    def then(message: Message) -> Any:
        calls.append(message.text())
        if how == "returned":
            return outcome
        raise outcome if how == "raised" else KeyError("half an effect")

    key = database.once_by(lambda message: "same")
    booking(app, then, is_async=is_async, idempotent=key, retry=policy, retries=0)
    with TestApp(app) as t:
        t.publish("orders", "1")
        t.settle()
        t.publish("orders", "2")
        t.settle()
    return calls


@KINDS
def test_an_exception_handler_that_says_done_undoes_the_effect_too(
    database: Database, engine: Engine, is_async: bool
) -> None:
    app = RocketApp("shop", plugins=[database])
    app.exception_handler(KeyError)(lambda message, error: None)

    def then(message: Message) -> Any:
        raise KeyError("half an effect")

    booking(app, then, is_async=is_async, idempotent=database.once)
    with TestApp(app) as t:
        t.publish("orders", "1")
        t.settle()
        assert (len(t.handled), len(t.retried)) == (1, 0)
    assert (rows(engine, effects), rows(engine, marks)) == (0, 0)


@KINDS
def test_a_middleware_stands_inside_of_the_transaction(database: Database, engine: Engine, is_async: bool) -> None:
    app = RocketApp("shop", plugins=[database])

    @app.middleware
    def late_sync(message: Message, call_next: Callable[[Message], Any]) -> None:
        call_next(message)
        raise ValueError("after the handler")

    @app.middleware
    async def late(message: Message, call_next: Callable[[Message], Any]) -> None:
        await call_next(message)
        raise ValueError("after the handler")

    booking(app, lambda message: None, is_async=is_async, idempotent=database.once, retries=0)
    with TestApp(app) as t:
        t.publish("orders", "1")
        t.settle()
        assert len(t.dead) == 1
    assert (rows(engine, effects), rows(engine, marks)) == (0, 0)


OUTCOMES_OF_A_BATCH: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    # One commit: the effect of a failed message needs a savepoint of the user's.
    "one retried": ({"1": Retry()}, (2, 1)),
    "one plain": ({"1": Skip("no")}, (2, 2)),
    "none plain": ({"1": Skip("no"), "2": DeadLetter("no")}, (0, 0)),
}
"""What is said of the messages "1" and "2", and the effects and marks that are kept."""


@KINDS
@pytest.mark.parametrize(("said", "kept"), OUTCOMES_OF_A_BATCH.values(), ids=OUTCOMES_OF_A_BATCH)
def test_a_batch_commits_once_when_it_has_a_plain_message(
    database: Database, engine: Engine, is_async: bool, said: dict[str, Any], kept: tuple[int, int]
) -> None:
    app = RocketApp("shop", plugins=[database])

    def outcomes(messages: list[Message]) -> Outcomes:
        return Outcomes({one: said[one.text()] for one in messages if one.text() in said})

    if is_async:

        @app.subscribe("orders", batch=10, idempotent=database.once, retries=0)
        async def take(messages: list[Message], session: AsyncSession) -> Any:
            await session.execute(insert(effects), [{"number": 1} for _ in messages])
            return outcomes(messages)
    else:

        @app.subscribe("orders", batch=10, idempotent=database.once, retries=0)
        def take_sync(messages: list[Message], session: Session) -> Any:
            session.execute(insert(effects), [{"number": 1} for _ in messages])
            return outcomes(messages)

    with TestApp(app) as t:
        t.publish_many("orders", ["1", "2"], order_key="one queue")
        t.settle()
    assert (rows(engine, effects), rows(engine, marks)) == kept
