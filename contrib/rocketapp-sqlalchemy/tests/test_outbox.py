"""The outbox: what is committed is sent, in order for each key; what is rolled back is not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import Engine, select, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from rocketapp import Message, RocketApp, SendUnknown
from rocketapp.testing import TestApp
from rocketapp_sqlalchemy import Database, Outbox
from rocketapp_sqlalchemy.relay import Relay
from rocketapp_sqlalchemy.tables import metadata, outbox, slots


@pytest.fixture
def database(engine: Engine, async_engine: AsyncEngine) -> Database:
    return Database(engine, async_engine)


def waiting(engine: Engine) -> int:
    with engine.connect() as connection:
        return len(connection.execute(select(outbox.c.id)).all())


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "sync"])
def test_what_a_handler_wrote_is_sent_when_it_is_done(database: Database, engine: Engine, is_async: bool) -> None:
    box, taken = Outbox(database), list[Message]()
    app = RocketApp("shop", plugins=[database, box])

    def write(message: Message, session: Any) -> None:
        box.publish(session, "bills", {"order": message.text()}, tag="new", keys=["k"], properties={"a": "b"})
        if message.attempt == 1:
            raise ValueError("after writing")

    if is_async:

        @app.subscribe("orders", idempotent=database.once)
        async def settle(message: Message, session: AsyncSession) -> None:
            write(message, session)
    else:

        @app.subscribe("orders", idempotent=database.once)
        def settle_sync(message: Message, session: Session) -> None:
            write(message, session)

    @app.subscribe("bills")
    async def bill(message: Message) -> None:
        taken.append(message)

    with TestApp(app) as t:
        t.publish("orders", "1")
        t.advance(1)
        assert taken == []
        t.advance(30)
        (one,) = taken
        assert (one.json(), one.tag, one.keys, one.properties["a"]) == ({"order": "1"}, "new", ["k"], "b")
        assert len(one.properties["outbox_id"]) == 32
    assert waiting(engine) == 0


def test_messages_of_one_key_are_sent_in_the_order_of_writing(database: Database, engine: Engine) -> None:
    metadata.create_all(engine)
    box, taken = Outbox(database), list[str]()
    app = RocketApp("shop", plugins=[database, box])

    @app.subscribe("bills", orderly=True)
    async def bill(message: Message) -> None:
        taken.append(message.text())

    with Session(engine) as session, session.begin():
        for number in range(250):
            box.publish(session, "bills", f"{number % 7} {number}", order_key=str(number % 7))
    with TestApp(app) as t:
        t.advance(30)
    assert len(taken) == 250
    for key in range(7):
        numbers = [int(text.split()[1]) for text in taken if text.startswith(f"{key} ")]
        assert numbers == sorted(numbers)
    assert waiting(engine) == 0


class Sent(list[str]):
    """Stands for publishing: keeps bodies, and fails when a test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.problem: Callable[[str], Exception | None] = lambda body: None

    async def __call__(self, topic: str, body: bytes, **options: Any) -> None:
        await asyncio.sleep(0)
        problem = self.problem(body.decode())
        if problem is not None:
            raise problem
        self.append(body.decode())


def written(database: Database, engine: Engine, *bodies: str, **options: Any) -> None:
    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        for body in bodies:
            Outbox(database).publish(session, "bills", body, **{"order_key": "one", **options})


async def running(relay: Relay, until: Callable[[], bool]) -> None:
    """Let it run until a condition holds."""
    await relay.prepare()
    task = asyncio.ensure_future(relay.run())
    try:
        async with asyncio.timeout(20):
            while not until():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.01)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def relay_of(database: Database, sent: Callable[..., Awaitable[Any]], lease: float = 15.0) -> Relay:
    return Relay(database.run, sent, slots=16, lease=lease, interval=0.01)


async def test_nothing_overtakes_a_message_that_is_not_sent_yet(database: Database, engine: Engine) -> None:
    written(database, engine, "1", "2", "3")
    sent, failures = Sent(), list[str]()

    def problem(body: str) -> Exception | None:
        if body == "2" and len(failures) < 3:
            failures.append(body)
            return SendUnknown("bills", "no answer")
        return None

    sent.problem = problem
    await running(relay_of(database, sent), lambda: len(sent) == 3)
    assert sent == ["1", "2", "3"]
    assert failures == ["2"] * 3


async def test_what_can_never_be_sent_is_left_alone_with_the_reason(database: Database, engine: Engine) -> None:
    written(database, engine, "1", "2", "3")
    sent = Sent()
    sent.problem = lambda body: ValueError("a body of 5 MiB") if body == "2" else None
    await running(relay_of(database, sent), lambda: len(sent) == 2 and waiting(engine) == 1)
    with engine.connect() as connection:
        (row,) = connection.execute(select(outbox))
    assert (bytes(row.body), row.problem) == (b"2", "a body of 5 MiB")


async def test_a_slot_has_one_relay_until_it_is_given_up(database: Database, engine: Engine) -> None:
    written(database, engine, "1")
    first, second, one, other = Sent(), Sent(), list[Relay](), list[Relay]()
    one.append(relay_of(database, first))
    other.append(relay_of(database, second))
    await running(one[0], lambda: len(first) == 1 and waiting(engine) == 0)
    written(database, engine, "2")
    await other[0].prepare()
    assert await other[0]._send_slot(_slot(engine)) is False
    await one[0].leave()
    await running(other[0], lambda: len(second) == 1)
    assert (first, second) == (["1"], ["2"])


async def test_the_slots_of_a_relay_that_died_are_free_when_its_lease_ends(database: Database, engine: Engine) -> None:
    written(database, engine, "1")
    first, second = Sent(), Sent()
    relay = relay_of(database, first)
    await running(relay, lambda: len(first) == 1 and waiting(engine) == 0)
    written(database, engine, "2")
    with engine.begin() as connection:
        connection.execute(update(slots).values(until=0.0))  # as if its time were over
    await running(relay_of(database, second), lambda: len(second) == 1)


async def test_what_was_sent_before_a_relay_was_cut_is_removed(database: Database, engine: Engine) -> None:
    written(database, engine, "1", "2")
    sent = Sent()

    async def hang_at_the_second(topic: str, body: bytes, **options: Any) -> None:
        if body == b"2":
            await asyncio.Event().wait()
        sent.append(body.decode())

    await running(relay_of(database, hang_at_the_second), lambda: sent == ["1"])
    assert waiting(engine) == 1


def _slot(engine: Engine) -> int:
    with engine.connect() as connection:
        slot: int = connection.execute(select(outbox.c.slot)).scalar_one()
        return slot


def test_an_unknown_option_is_refused(database: Database) -> None:
    with pytest.raises(TypeError, match="takes no keyword 'tags'"):
        Outbox(database).publish(Session(), "bills", b"", tags="new")  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="give 5 seconds or more"):
        Outbox(database, lease=1)
