"""Tables of databases pass the suites of stores: PostgreSQL, and Derby, which Spark brings along, in memory."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import postgres
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pieces import items
from pyspark.sql import SparkSession
from sink_shop import lake_plugin, until

from rocketapp import RocketApp, SetupError
from rocketapp_lake.batches import Batch
from rocketapp_lake.commands import command
from rocketapp_lake.committer import Attempt
from rocketapp_lake.conformance import LANE, GrowingSuite, Span, StoreSuite, commit_of, put, rows_of
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.records import Commit, Head
from rocketapp_lake.staging import Staged
from rocketapp_pyspark.database import Database, DatabaseError, JdbcOptions
from rocketapp_pyspark.jdbc import JdbcStore
from rocketapp_pyspark.session import Spark

pytestmark = pytest.mark.timeout(300)
_numbers = itertools.count()


@pytest.fixture(scope="module")
def server(spark: SparkSession) -> Iterator[postgres.Server]:
    if postgres.driver() is None:
        pytest.skip(postgres.MISSING)
    with postgres.serving() as server:
        yield server


class Shop:
    """A database of its own, and a table in it."""

    def __init__(self, options: JdbcOptions) -> None:
        self.options, self.name = options, options.url.rpartition("/")[2]
        self.database = Database(Spark("local[2]", {}), options)

    def store(self, sink: str, table: str = "orders") -> JdbcStore:
        return JdbcStore(table, sink, self.database)

    def rows(self) -> Sequence[Mapping[str, Any]]:
        with self.database.connected() as connection:
            if not connection.has("", "orders"):
                return []
            names = connection.columns('"orders"')
            # Texts are CLOBs in Derby.
            shown = [f'"{name}"' if name == "id" else f'CAST("{name}" AS VARCHAR(99))' for name in names]
            found = connection.rows(f'SELECT {", ".join(shown)} FROM "orders"')
            return [dict(zip(names, row, strict=True)) for row in found]

    def stages(self) -> int:
        return self.store("one").left_over()


@pytest.fixture
def shop(server: postgres.Server) -> Shop:
    """In PostgreSQL."""
    url = server.create(f"shop{next(_numbers)}")
    return Shop(JdbcOptions(url=url, user=postgres.USER, password=postgres.PASSWORD))


@pytest.fixture(params=["postgresql", "derby"])
def table(request: pytest.FixtureRequest, spark: SparkSession) -> Shop:
    if request.param == "derby":
        return Shop(JdbcOptions(url=f"jdbc:derby:memory:shop{next(_numbers)};create=true"))
    found: Shop = request.getfixturevalue("shop")
    return found


class TestJdbc(StoreSuite, GrowingSuite):
    """The suites of all stores."""


# Deaths.


def test_what_was_staged_by_an_owner_that_died_is_not_there(shop: Shop) -> None:
    shop.store("one")._stage_rows("a", rows_of(0))
    assert (shop.store("one").load(), shop.rows(), shop.stages()) == (Head(), [], 1)


def test_a_transaction_that_is_cut_off_leaves_nothing(shop: Shop, server: postgres.Server) -> None:
    put(shop.store("one"), "a", 0)
    store = shop.store("one")
    staged = store._stage_rows("b", rows_of(1))
    commit = commit_of(store.load(), "b", {LANE: Span(1, 2)}, rows=1)
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
    with server.connect(shop.name) as other, server.connect() as watch, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
            publishing = pool.submit(store._publish, commit, staged)
            while (blocked := watch.execute(waiting, [shop.name]).fetchone()) is None:
                assert not publishing.done()
            # It has added its commit and moved the positions, and copies the rows.
            watch.execute("SELECT pg_terminate_backend(%s)", [blocked["pid"]])
        with pytest.raises(DatabaseError):
            publishing.result()
    assert store.who_committed(2) is None
    assert dict(store.load().vector) == {LANE: 1}
    assert [row["id"] for row in shop.rows()] == [0]
    store._publish(commit, staged)
    assert sorted(row["id"] for row in shop.rows()) == [0, 1]


class Forgetful(JdbcStore):
    """Its owner does not learn that it has committed."""

    def _publish(self, commit: Commit, staged: Staged | None) -> None:
        super()._publish(commit, staged)
        raise ConnectionError("no answer")


def test_a_commit_whose_answer_was_lost_is_found_again(shop: Shop) -> None:
    store = Forgetful("orders", "one", shop.database)
    batch = Batch({LANE: items(0, 1)}, {LANE: Span(0, 2)})
    attempt = Attempt(store, "one", batch, to_table=lambda batch: rows_of(0, 1), now=lambda: 1.0)
    with pytest.raises(ConnectionError):
        attempt.run()
    done = attempt.run()
    assert (done.head.sequence, done.rows) == (1, 2)
    assert sorted(row["id"] for row in shop.rows()) == [0, 1]


def test_positions_that_lie_above_the_rows_fence_them(shop: Shop, server: postgres.Server) -> None:
    store = shop.store("one")
    put(store, "a", 0)
    with server.connect(shop.name) as other:
        other.execute("UPDATE rmq_positions SET next_offset = 9")
    staged = store._stage_rows("b", rows_of(1))
    with pytest.raises(FencedError, match="is at #9 already"):
        store._publish(commit_of(store.load(), "b", {LANE: Span(1, 2)}, rows=1), staged)
    assert [row["id"] for row in shop.rows()] == [0]


def test_a_stage_that_is_gone_or_changed_is_noticed_before_the_commit(shop: Shop, server: postgres.Server) -> None:
    store = shop.store("one")
    commit = commit_of(Head(), "a", {LANE: Span(0, 2)}, rows=2)
    staged = store._stage_rows("a", rows_of(0, 1))
    with server.connect(shop.name) as other:
        other.execute(f"DELETE FROM {staged.content[0]} WHERE id = 1")
    with pytest.raises(SinkError, match="has 1 rows of 2"):
        store._publish(commit, staged)
    assert store.sweep(0.0) == 1
    with pytest.raises(SinkError, match="staged too long ago"):
        store._publish(commit, staged)
    assert (store.load(), shop.rows()) == (Head(), [])


def test_a_transaction_that_stands_still_does_not_keep_others_waiting(shop: Shop) -> None:
    with shop.database.connected() as connection:
        assert connection.rows("SHOW idle_in_transaction_session_timeout") == [("30s",)]


# Tables.


def test_every_kind_of_column_is_stored_as_it_was(shop: Shop, server: postgres.Server, spark: SparkSession) -> None:
    stored = datetime(2026, 11, 22, 1, 2, 3, 456789, UTC)
    columns = {
        "id": ([1, 2], pa.int64()),
        "ratio": ([1.5, None], pa.float64()),
        "text": (["ä'\"", None], pa.string()),
        "raw": ([b"\0x", None], pa.binary()),
        "is_paid": ([True, None], pa.bool_()),
        "at": ([stored, None], pa.timestamp("us", tz="UTC")),
        "day": ([date(2026, 1, 2), None], pa.date32()),
        "price": ([Decimal("1.123456789"), None], pa.decimal128(38, 9)),
        "tags": ([["a", "b"], None], pa.list_(pa.string())),
    }
    rows = pa.table({name: pa.array(values, kind) for name, (values, kind) in columns.items()})
    zones: Any = spark
    jvm = zones._jvm
    before = jvm.java.util.TimeZone.getDefault()
    jvm.java.util.TimeZone.setDefault(jvm.java.util.TimeZone.getTimeZone("Asia/Kolkata"))
    try:
        store = shop.store("one", "kinds")
        store._publish(commit_of(Head(), "a", {LANE: Span(0, 2)}, rows=2), store._stage_rows("a", rows))
    finally:
        jvm.java.util.TimeZone.setDefault(before)
    with server.connect(shop.name) as other:
        assert other.execute("SELECT * FROM kinds ORDER BY id").fetchall() == rows.to_pylist()


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ("id bigint", '"orders" has no column text: it has id; add what is missing'),
        ("id date, text text", '"orders" has other columns than the rows of the sink: .* "id" is of type date'),
    ],
)
def test_a_table_of_other_columns_is_refused_before_anything_is_loaded(
    shop: Shop, server: postgres.Server, columns: str, problem: str
) -> None:
    with server.connect(shop.name) as other:
        other.execute(f"CREATE TABLE orders ({columns})")  # type: ignore[call-overload]
    with pytest.raises(SinkError, match=problem):
        shop.store("one")._stage_rows("a", rows_of(0))
    assert shop.stages() == 0


def test_a_table_of_your_own_may_have_a_schema_keys_and_more_columns(shop: Shop, server: postgres.Server) -> None:
    with server.connect(shop.name) as other:
        other.execute("CREATE SCHEMA lake")
        other.execute("CREATE TABLE lake.orders (number serial, text varchar(9), id bigint PRIMARY KEY)")
        put(shop.store("one", "lake.orders"), "a", 5, 6)
        assert other.execute("SELECT number, text, id FROM lake.orders ORDER BY id").fetchall() == [
            {"number": 1, "text": "row 5", "id": 5},
            {"number": 2, "text": "row 6", "id": 6},
        ]
        assert other.execute("SELECT next_offset FROM lake.rmq_positions").fetchall() == [{"next_offset": 7}]


def test_a_table_grows_by_a_column_when_its_first_rows_come(table: Shop) -> None:
    with_note = rows_of(1).append_column("note", pa.array(["note 1"]))
    for number, rows in enumerate([rows_of(0), with_note, rows_of(2)]):
        batch = Batch({LANE: items(number)}, {LANE: Span(number, number + 1)})
        Attempt(
            table.store("one"), "one", batch, to_table=lambda _, rows=rows: rows, now=lambda: 1.0, evolution="add"
        ).run()
    assert {row["id"]: row["note"] for row in table.rows()} == {0: None, 1: "note 1", 2: None}


def test_columns_that_databases_do_not_have_are_refused_by_name(shop: Shop) -> None:
    rows = pa.table({"by_key": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    with pytest.raises(SinkError, match="column by_key is map<string,bigint>, for which the database has no type"):
        shop.store("one")._stage_rows("a", rows)


def test_commits_of_many_queues_are_kept_whole(shop: Shop) -> None:
    store = shop.store("one")
    lanes = {
        LANE._replace(queue=number, broker=f"broker-{'x' * 50}-{number}"): Span(0, number + 1) for number in range(90)
    }
    store._publish(commit_of(Head(), "a", lanes), None)
    assert dict(store.load().vector) == {lane: span.end for lane, span in lanes.items()}
    assert shop.store("one").log()[0].spans == lanes


@dataclass
class Note:
    id: int
    text: str
    words: list[str]


async def test_a_text_with_a_nul_which_postgresql_cannot_hold_is_a_bad_row(
    shop: Shop, rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__CRASH_DIR", "")
    monkeypatch.setenv("ROCKETAPP_CONSUMER__JOIN_TIMEOUT", "0")
    app: Any = RocketApp("shop", plugins=lake_plugin())
    place = {"url": shop.options.url, "user": postgres.USER, "password": postgres.PASSWORD}
    app.sink("notes", table="orders", format="jdbc", schema=Note, bad_rows="column", flush_seconds=0.2, **place)
    async with app:
        notes = [Note(1, "a\0b", ["c"]), Note(2, "a", ["b", "c"]), Note(3, "a", ["b", "\0"])]
        await app.publish_many("notes", notes)
        await until(lambda: len(shop.rows()) == 3)
    found = sorted((str(row["id"] or ""), row["_rmq_problem"] or "") for row in shop.rows())
    problem = "the text has a NUL, which the database cannot hold"
    assert found == [("", f"field text: {problem}"), ("", f"field words: {problem}"), ("2", "")]


# The command.


def test_the_command_shows_the_sinks_of_a_table(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    put(shop.store("shop/orders"), "a", 0, 1, sink="shop/orders")
    put(shop.store("shop/orders"), "b", 2, sink="shop/orders")
    shop.store("shop/orders")._stage_rows("c", rows_of(3))
    arguments = ["show", "orders", "--url", shop.options.url, "--user", postgres.USER]
    refused = CliRunner().invoke(command, arguments)
    assert (refused.exit_code, "no password was provided" in refused.output) == (1, True)
    monkeypatch.setenv("ROCKETAPP_SINK_PASSWORD", postgres.PASSWORD)
    assert CliRunner().invoke(command, [*arguments, "--commits", "1"]).output.splitlines() == [
        "shop/orders: commit 2 at 1970-01-01T00:00:01+00:00, 3 rows",
        "  orders@broker-a:0  next #3",
        "  commit 2 at 1970-01-01T00:00:01+00:00: 1 rows of orders@broker-a:0 #2-#2",
        "staged and not published: 1 batches",
    ]
    other = CliRunner().invoke(command, ["show", "others", *arguments[2:]])
    assert (other.exit_code, "others is not the table of a sink" in other.output) == (2, True)


def test_the_command_sets_positions(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    put(shop.store("shop/orders"), "a", 0, 1, sink="shop/orders")
    monkeypatch.setenv("ROCKETAPP_SINK_PASSWORD", postgres.PASSWORD)
    arguments = ["rebase", "orders", "--url", shop.options.url, "--user", postgres.USER]
    dry = CliRunner().invoke(command, [*arguments, "--to", "orders@broker-a:0=1", "--dry-run"])
    assert dry.output.splitlines()[-1] == "nothing was changed: --dry-run"
    assert shop.store("shop/orders").load().sequence == 1
    done = CliRunner().invoke(command, [*arguments, "--to", "orders@broker-a:0=1"])
    assert done.output.splitlines() == ["shop/orders:", "  orders@broker-a:0  #2 -> #1", "  commit 2"]
    assert dict(shop.store("shop/orders").load().vector) == {LANE: 1}


# Secrets.


def test_passwords_are_in_no_repr_error_log_or_plan(
    shop: Shop, spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = postgres.PASSWORD
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(logging.getLogger("py4j"), "level", logging.DEBUG)
    put(shop.store("one"), "a", 0)
    wrong = JdbcOptions(url=f"{shop.options.url}?password=hidden", user=postgres.USER, password="guessed")
    with pytest.raises(DatabaseError) as refused:
        Shop(wrong).store("one").load()
    with pytest.raises(
        SinkError, match=r"Spark has no JDBC driver for jdbc:nobase:\.\.\.@db/shop: name its jar"
    ) as unknown:
        Shop(JdbcOptions(url="jdbc:nobase://me:hidden@db/shop?password=hidden")).store("one").load()
    inner: Any = spark
    executions = inner._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(number).physicalPlanDescription() for number in range(executions.size())]
    assert any("orders" in plan or "rmq_stg" in plan or "Jdbc" in plan for plan in plans)
    shown = [repr(shop.options), repr(shop.database), repr(shop.store("one")), str(refused.value), str(unknown.value)]
    for text in (*shown, caplog.text, *plans):
        assert not any(word in text for word in (secret, "hidden", "guessed")), text


# Declarations.


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "format='jdbc': url= is missing"),
        ({"url": "postgresql://db/shop"}, "format='jdbc': url= begins with jdbc:"),
        ({"url": "jdbc:x://db", "pasword": "x"}, "format='jdbc': pasword= is unknown: password= is meant?"),
        ({"url": "jdbc:x://db", "password": 5}, "format='jdbc': password= is a text"),
        ({"url": "jdbc:x://db", "table": "a.b.c"}, "table='a.b.c': give the name of a table"),
        ({"url": "jdbc:x://db", "partition_by": "day"}, "partition_by='day': a table of a database has"),
        ({"url": "jdbc:x://db", "name": "x" * 201}, "is too long"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(options: dict[str, Any], problem: str) -> None:
    app: Any = RocketApp("shop")
    with pytest.raises(SetupError) as caught:
        app.sink("orders", **{"table": "orders", "format": "jdbc", **options})
    assert problem in caught.value.problem
