"""The outbox: what is committed is sent, in order for each key; what is rolled back is not."""

from __future__ import annotations

import asyncio
import random
import tomllib
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from sqlalchemy import Engine, event, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from rocketapp import Message, RocketApp, SendRefused, SendUnknown, SetupError
from rocketapp.plugin import PluginError
from rocketapp.testing import TestApp
from rocketapp_sqlalchemy import Database, Outbox, marking
from rocketapp_sqlalchemy.relay import Relay, next_rows, waiting_slots
from rocketapp_sqlalchemy.tables import metadata, outbox, slots


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


def test_a_row_that_is_written_without_a_session_is_sent_like_any_other(database: Database, engine: Engine) -> None:
    box, taken = Outbox(database), list[Message]()
    app = RocketApp("shop", plugins=[database, box])

    @app.subscribe("bills")
    async def bill(message: Message) -> None:
        taken.append(message)

    with TestApp(app) as t:
        row = box.message("bills", {"order": 1}, tag="new", order_key="1")
        values = {"slot": row.slot, "topic": row.topic, "body": row.body, "options": row.options}
        with engine.begin() as connection:
            connection.execute(outbox.insert().values(values))
        t.advance(5)
        (one,) = taken
        assert (one.json(), one.tag, len(one.properties["outbox_id"])) == ({"order": 1}, "new", 32)
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
    """Let it run until a condition holds: only a test that fails waits for the whole limit on a busy machine."""
    await relay.prepare()
    task = asyncio.ensure_future(relay.run())
    try:
        async with asyncio.timeout(120):
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


async def test_what_is_sent_belongs_to_the_trace_of_what_wrote_it(database: Database, engine: Engine) -> None:
    writing = trace.SpanContext(7, 8, is_remote=False, trace_flags=trace.TraceFlags(trace.TraceFlags.SAMPLED))
    with trace.use_span(trace.NonRecordingSpan(writing)):
        written(database, engine, "of a trace")
    written(database, engine, "of none")
    traces: dict[str, int] = {}

    async def sent(topic: str, body: bytes, **options: Any) -> None:
        traces[body.decode()] = trace.get_current_span().get_span_context().trace_id

    await running(relay_of(database, sent), lambda: len(traces) == 2)
    assert traces == {"of a trace": 7, "of none": 0}


async def test_a_lower_number_that_is_committed_later_is_not_overtaken(database: Database, engine: Engine) -> None:
    """Transactions commit in another order than they took their numbers; those of one key do not."""
    written(database, engine, "other", "first", "second")
    with Session(engine) as session, session.begin():
        rows = {
            body: dict(row)
            for body, row in (
                (row["body"].decode(), row) for row in session.execute(select(outbox).order_by(outbox.c.id)).mappings()
            )
        }
        for number, body in ((10, "first"), (11, "other"), (12, "second")):
            rows[body]["id"] = number
        session.execute(outbox.delete())
        session.execute(outbox.insert(), [rows["other"]])
    sent = Sent()

    def problem(body: str) -> Exception | None:
        if body == "other":
            with Session(engine) as session, session.begin():
                session.execute(outbox.insert(), [rows["first"], rows["second"]])
        return None

    sent.problem = problem
    await running(relay_of(database, sent), lambda: len(sent) == 3)
    assert sent == ["other", "first", "second"]


async def test_a_message_that_is_committed_late_is_not_overtaken_behind_many_that_wait(
    database: Database, engine: Engine
) -> None:
    stuck, free = [key for key in map(str, range(200)) if zlib.crc32(key.encode()) % 16 == 0][:2]
    written(database, engine, *["stuck"] * 150, order_key=stuck)
    written(database, engine, "first", "second", order_key=free)
    with Session(engine) as session, session.begin():
        rows = [dict(row) for row in session.execute(select(outbox).order_by(outbox.c.id)).mappings()]
        session.execute(outbox.delete())
        *waits, first, second = rows
        # Two transactions, one after the other; the first one took its number long before it was committed.
        first["id"], second["id"] = waits.pop(50)["id"], waits[-1]["id"] + 1
        session.execute(outbox.insert(), waits)
    sent, failures = Sent(), list[str]()

    def problem(body: str) -> Exception | None:
        if body != "stuck":
            return None
        if not failures:
            with Session(engine) as session, session.begin():
                session.execute(outbox.insert(), [first, second])
        failures.append(body)
        return SendUnknown("bills", "no answer")

    sent.problem = problem
    await running(relay_of(database, sent), lambda: len(sent) == 2)
    assert sent == ["first", "second"]


async def test_a_kill_sends_at_most_32_messages_twice(database: Database, engine: Engine) -> None:
    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        for number in range(160):
            Outbox(database).publish(session, "bills", str(number))
    sent, unremoved, removed = Sent(), list[int](), list[int]()

    def count(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE FROM rocketapp_outbox"):
            removed.append(cursor.rowcount)

    async def publish(topic: str, body: bytes, **options: Any) -> None:
        # With this one: were the process killed now, these would be sent once more.
        unremoved.append(len(unremoved) + 1 - sum(removed))
        await sent(topic, body, **options)

    event.listen(engine, "after_cursor_execute", count)
    await running(relay_of(database, publish), lambda: sum(removed) == 160)
    assert max(unremoved) <= 32
    assert sorted(sent, key=int) == list(map(str, range(160)))


async def test_nothing_is_sent_twice_while_sent_messages_cannot_be_removed(database: Database, engine: Engine) -> None:
    written(database, engine, *map(str, range(50)))
    sent, refused = Sent(), list[str]()

    def refuse(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE FROM rocketapp_outbox") and len(refused) < 3:
            refused.append(statement)
            raise OSError("the disk is full")

    event.listen(engine, "before_cursor_execute", refuse)
    await running(relay_of(database, sent), lambda: waiting(engine) == 0)
    assert len(refused) == 3
    assert sent == list(map(str, range(50)))


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
    assert await other[0]._serve(_slot(engine)) is False
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
    assert (first, second) == (["1"], ["2"])


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


@pytest.mark.parametrize("has_database", [True, False])
def test_an_outbox_without_its_database_in_front_of_it_is_refused(database: Database, has_database: bool) -> None:
    app = RocketApp("shop", plugins=[Outbox(database), *[database][: int(has_database)]])
    with pytest.raises(PluginError, match=r"needs its database in front of it: RocketApp\(plugins=\[database, outbox"):
        TestApp(app).__enter__()


def test_what_the_package_imports_is_installed_with_it() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    # SQLAlchemy's asyncio module cannot be imported without greenlet, which is in this extra alone.
    assert any(one.startswith("sqlalchemy[asyncio]") for one in project["dependencies"])


KEYS = [key for key in map(str, range(400)) if zlib.crc32(key.encode()) % 16 < 2][:8]
"""Keys in two slots."""
PER_WRITER = 10


def write_each_in_turn(database: Database, engine: Engine, seed: int) -> None:
    """Transactions of one key exclude each other by the row of its counter; those of others overlap."""
    chance, box = random.Random(seed), Outbox(database)
    for _ in range(PER_WRITER):
        with Session(engine) as session, session.begin():
            for key in sorted(chance.sample(KEYS, 2)):
                session.execute(text("UPDATE counters SET place = place + 1 WHERE name = :name"), {"name": key})
                place = session.execute(text("SELECT place FROM counters WHERE name = :name"), {"name": key}).scalar()
                box.publish(session, "bills", f"{key} {place}", order_key=key)
                session.flush()  # takes its number long before the commit


@pytest.mark.parametrize("seed", range(2))
async def test_beside_writers_and_failures_two_relays_lose_nothing_and_keep_the_order_of_each_key(
    database: Database, engine: Engine, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketapp_sqlalchemy.relay._AWAY", 0.0)
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE counters (name VARCHAR(9) PRIMARY KEY, place INTEGER NOT NULL)"))
        connection.execute(text("INSERT INTO counters VALUES (:name, 0)"), [{"name": key} for key in KEYS])
    stored, chance = list[str](), random.Random(seed)

    async def publish(topic: str, body: bytes, **options: Any) -> None:
        await asyncio.sleep(0)
        fate = chance.random()
        if fate > 0.1:
            stored.append(body.decode())
        if fate < 0.2:  # of these the half is stored all the same
            raise SendUnknown(topic, "no answer")

    writers = [asyncio.to_thread(write_each_in_turn, database, engine, 10 * seed + each) for each in range(3)]
    written, wanted = asyncio.gather(*writers), 3 * 2 * PER_WRITER
    relays = [relay_of(database, publish), relay_of(database, publish)]
    await asyncio.gather(*(running(relay, lambda: len(set(stored)) == wanted) for relay in relays), written)
    for key in KEYS:
        first = list(dict.fromkeys(int(body.split()[1]) for body in stored if body.split()[0] == key))
        assert first == list(range(1, len(first) + 1))


def test_a_message_that_is_refused_for_what_it_is_lets_its_key_go_on(database: Database, engine: Engine) -> None:
    metadata.create_all(engine)
    box, taken = Outbox(database), list[str]()
    app = RocketApp("shop", plugins=[database, box])

    @app.subscribe("bills")
    async def bill(message: Message) -> None:
        taken.append(message.text())

    with Session(engine) as session, session.begin():
        # How much the producer takes is a setting, which is read when the app starts.
        box.publish(session, "bills", b"x" * 5_000_000, order_key="one")
        box.publish(session, "bills", "2", order_key="one")
    with TestApp(app) as t:
        t.advance(30)
    assert taken == ["2"]
    with engine.connect() as connection:
        assert "producer.max_message_bytes" in connection.execute(select(outbox.c.problem)).scalar_one()


REFUSED: dict[str, tuple[str, Any, dict[str, Any], str]] = {
    "topic": ("no such topic!", "1", {}, "no such topic!"),
    "body": ("bills", "", {}, "the body is empty"),
    "tag": ("bills", "1", {"tag": "a || b"}, "a message has one tag"),
    "property": ("bills", "1", {"properties": {"KEYS": "reserved"}}, "belongs to RocketMQ"),
    "key": ("bills", "1", {"keys": ["a b"]}, "keys are joined by blanks"),
    "delay": ("bills", "1", {"delay": -1}, "give seconds above 0"),
    "cluster": ("bills", "1", {"cluster": "eu"}, "cluster='eu' is unknown"),
}


@pytest.mark.parametrize("refused", REFUSED)
@pytest.mark.parametrize("has_app", [True, False], ids=["of an app", "without an app"])
def test_what_can_never_be_sent_is_refused_when_it_is_written(database: Database, refused: str, has_app: bool) -> None:
    box = Outbox(database)
    app = RocketApp("shop", plugins=[database, box]) if has_app else None
    topic, body, options, problem = REFUSED[refused]
    session = Session()
    with pytest.raises((TypeError, ValueError, SendRefused, SetupError), match=problem):
        box.publish(session, topic, body, **options)
    assert not session.new
    del app


@pytest.mark.parametrize("healthy", [("", "healthy"), ("eu", "away")], ids=["topic", "cluster"])
async def test_a_topic_of_a_cluster_that_nothing_can_be_sent_to_holds_up_no_other(
    database: Database, engine: Engine, healthy: tuple[str, str]
) -> None:
    metadata.create_all(engine)
    box = Outbox(database)
    app = RocketApp("shop", clusters={"eu": "eu:9876"}, plugins=[database, box])
    with Session(engine) as session, session.begin():
        for cluster, topic in (("", "away"), healthy):
            for number in range(120):
                box.publish(session, topic, str(number), cluster=cluster, order_key=str(number))
    sent, tried = Sent(), list[str]()

    async def publish(topic: str, body: bytes, **options: Any) -> None:
        if (options["cluster"], topic) != healthy:
            tried.append(topic)
            raise SendUnknown("away", "no answer")
        await sent(topic, body, **options)

    await running(relay_of(database, publish), lambda: len(sent) == 120)
    assert len(tried) < 60
    del app


def test_what_is_left_alone_is_a_topic_of_one_cluster(database: Database, engine: Engine) -> None:
    metadata.create_all(engine)
    box = Outbox(database)
    app = RocketApp("shop", clusters={"eu": "eu:9876"}, plugins=[database, box])
    places = [("", "orders"), ("eu", "orders"), ("", "bills")]
    with Session(engine) as session, session.begin():
        for cluster, topic in places:
            box.publish(session, topic, "x", cluster=cluster, order_key="k")
    with engine.connect() as connection:
        for left in places:
            rows = next_rows(connection, zlib.crc32(b"k") % 16, destinations=[left])
            assert [row.destination for row in rows] == [one for one in places if one != left]
    del app


async def test_order_is_kept_when_a_topic_is_back_at_once(
    database: Database, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketapp_sqlalchemy.relay._AWAY", 0.0)
    first, second, third = [key for key in map(str, range(200)) if zlib.crc32(key.encode()) % 16 == 0][:3]
    written(database, engine, "x", order_key=first)
    written(database, engine, "y", order_key=second)
    written(database, engine, *map(str, range(150)), order_key=third)
    sent, failures = Sent(), [SendUnknown("bills", "no answer"), SendUnknown("bills", "no answer")]
    sent.problem = lambda body: failures.pop() if failures else None
    await running(relay_of(database, sent), lambda: len(sent) == 152)
    assert [int(body) for body in sent if body.isdigit()] == list(range(150))


async def test_a_slot_that_fails_is_not_sent_beside_itself(database: Database, engine: Engine) -> None:
    """While another slot's transaction fails, a slow one goes on: the next round must not send it once more."""
    written(database, engine, "1", "2", "3")
    written(database, engine, "other", order_key="three")
    sent, fails, failed = Sent(), [OSError("the database is away")], asyncio.Event()

    async def slowly(topic: str, body: bytes, **options: Any) -> None:
        if body != b"other":
            await failed.wait()
            for _ in range(20):  # the next round would have its turn meanwhile
                await database.run(waiting_slots)
        await sent(topic, body, **options)

    async def run(work: Callable[..., Any]) -> Any:
        if "other" in sent and fails:
            failed.set()
            raise fails.pop()
        return await database.run(work)

    relay = Relay(run, slowly, slots=16, lease=15.0, interval=0.01)
    await running(relay, lambda: waiting(engine) == 0)
    assert [body for body in sent if body != "other"] == ["1", "2", "3"]
    assert fails == []


async def test_a_relay_goes_on_after_any_error(database: Database, engine: Engine) -> None:
    written(database, engine, "1")
    sent, errors = Sent(), [KeyError("of a plugin"), KeyError("of a driver")]
    sent.problem = lambda body: errors.pop() if len(errors) > 1 else None

    async def run(work: Callable[..., Any]) -> Any:
        if len(errors) == 1:
            raise errors.pop()
        return await database.run(work)

    await running(Relay(run, sent, slots=16, lease=15.0, interval=0.01), lambda: len(sent) == 1)
    assert errors == []


async def test_leases_of_slots_are_measured_by_one_clock(
    database: Database, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(database, engine, "1")
    first, second = Sent(), Sent()
    await running(relay_of(database, first), lambda: len(first) == 1 and waiting(engine) == 0)
    written(database, engine, "2")
    # A host whose clock is a minute ahead.
    ahead = marking.now() + 60
    monkeypatch.setattr("rocketapp_sqlalchemy.marking.now", lambda: ahead)
    assert await relay_of(database, second)._serve(_slot(engine)) is False
    assert second == []


def test_slots_with_messages_are_found_without_looking_at_all_messages(database: Database, engine: Engine) -> None:
    written(database, engine, "1")
    plans = list[str]()

    def see(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        cursor.execute(f"EXPLAIN QUERY PLAN {statement}")
        plans.extend(row[-1] for row in cursor.fetchall())

    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            event.listen(connection, "before_cursor_execute", see, once=True)
            waiting_slots(connection)
        assert "SCAN rocketapp_outbox" not in plans
        assert any("rocketapp_outbox_slot" in plan for plan in plans)


async def test_large_messages_are_read_a_few_at_a_time(database: Database, engine: Engine) -> None:
    metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        for _ in range(12):
            Outbox(database).publish(session, "bills", b"x" * 1_000_000, order_key="one")
            session.flush()  # one statement for all would be longer than MariaDB's max_allowed_packet
    with engine.connect() as connection:
        slot = connection.execute(select(outbox.c.slot)).scalars().first()
        assert slot is not None
        rows = next_rows(connection, slot)
        assert len(rows) == 4
        assert len(next_rows(connection, slot, [row.id for row in rows])) == 4


def test_each_commit_of_a_session_hurries_the_relay_and_none_fails_when_the_app_has_ended(
    database: Database, engine: Engine
) -> None:
    box, taken = Outbox(database, interval=3600.0), list[str]()
    app = RocketApp("shop", plugins=[database, box])

    @app.subscribe("bills")
    async def bill(message: Message) -> None:
        taken.append(message.text())

    with Session(engine) as session:
        with TestApp(app) as t:
            for number in range(3):
                box.publish(session, "bills", str(number))
                session.commit()
                t.advance(10)
                assert len(taken) == number + 1
        box.publish(session, "bills", "later")
        session.commit()
    assert waiting(engine) == 1


def test_a_savepoint_does_not_hurry_the_relay_in_place_of_the_commit(database: Database, engine: Engine) -> None:
    box, taken = Outbox(database, interval=3600.0), list[str]()
    app = RocketApp("shop", plugins=[database, box])

    @app.subscribe("bills")
    async def bill(message: Message) -> None:
        taken.append(message.text())

    with TestApp(app) as t:
        with Session(engine) as session, session.begin():
            with session.begin_nested():
                box.publish(session, "bills", "1")
            t.advance(10)
        t.advance(10)
    assert taken == ["1"]
