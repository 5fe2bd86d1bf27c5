"""Tables of databases: the suites of all stores, what the database refuses, and tables that others own."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import postgres
import pyarrow as pa
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from pieces import items
from sink_shop import Watch, lake_plugin, until
from store_suite import QUEUE, Span, StoreSuite, commit_of, put, rows_of

from rocketapp import Message, RocketApp, SetupError
from rocketapp_lake.batches import Batch, Made
from rocketapp_lake.commands import command
from rocketapp_lake.committer import Attempt
from rocketapp_lake.errors import FencedError, RefusedRowsError, SinkError
from rocketapp_lake.records import Commit, Head
from rocketapp_lake.sql import DatabaseError, SqlStore
from rocketapp_lake.sql_loading import Database
from tests.cases import cases
from tests.peers import databases

pytestmark = pytest.mark.timeout(300)
_numbers = itertools.count()


class Shop:
    """A database of its own, and a table in it."""

    def __init__(self, url: str) -> None:
        self.url, self.engine = url, sa.create_engine(url, poolclass=sa.NullPool)

    def store(self, sink: str = "one", table: str = "orders", merge_on: Sequence[str] = ()) -> SqlStore:
        return SqlStore(table, sink, Database(self.url), merge_on=merge_on)

    def run(self, *statements: str) -> None:
        with self.engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)

    def rows(self, table: str = "orders") -> Sequence[Mapping[str, Any]]:
        with self.engine.connect() as connection:
            if not sa.inspect(connection).has_table(table):
                return []
            return [dict(row) for row in connection.exec_driver_sql(f"SELECT * FROM {table}").mappings()]

    def ids(self, table: str = "orders") -> list[int]:
        return sorted(row["id"] for row in self.rows(table))


@pytest.fixture(scope="module")
def server() -> Iterator[postgres.Server]:
    with postgres.serving() as server:
        yield server


@pytest.fixture(scope="module")
def mariadb() -> Iterator[str]:
    with ExitStack() as stack:
        yield stack.enter_context(databases.mariadb())


MAKERS: dict[str, Callable[[pytest.FixtureRequest], str]] = {
    "sqlite": lambda request: f"sqlite:///{request.getfixturevalue('tmp_path')}/shop.db",
    "postgresql": lambda request: str(request.getfixturevalue("server").create(f"shop{next(_numbers)}")),
}
if databases.HAS_MARIADB:
    MAKERS["mariadb"] = lambda request: databases.create_database(request.getfixturevalue("mariadb"))


@pytest.fixture(params=list(MAKERS))
def table(request: pytest.FixtureRequest) -> Shop:
    return Shop(MAKERS[request.param](request))


@pytest.fixture
def shop(request: pytest.FixtureRequest) -> Shop:
    """In PostgreSQL."""
    return Shop(MAKERS["postgresql"](request))


class TestSql(StoreSuite):
    """The suites of all stores."""


# The transaction.


def test_a_transaction_that_is_cut_off_leaves_nothing(shop: Shop, server: postgres.Server) -> None:
    put(shop.store(), "a", 0)
    store = shop.store()
    commit = commit_of(store.load(), "b", {QUEUE: Span(1, 2)}, rows=1)
    waiting = "SELECT pid FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
    name = shop.engine.url.database
    assert name is not None
    with server.connect(name) as other, server.connect() as watch, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute("LOCK TABLE orders IN SHARE MODE")
            committing = pool.submit(store.commit, commit, rows_of(1))
            while (blocked := watch.execute(waiting, [name]).fetchone()) is None:
                assert not committing.done()
            # It has passed the fence, and loads the rows.
            watch.execute("SELECT pg_terminate_backend(%s)", [blocked["pid"]])
        with pytest.raises(DatabaseError):
            committing.result()
    assert store.who_committed(2) is None
    assert dict(store.load().vector) == {QUEUE: 1}
    assert shop.ids() == [0]
    store.commit(commit, rows_of(1))
    assert shop.ids() == [0, 1]


class Forgetful(SqlStore):
    """Its owner does not learn that it has committed."""

    def commit(self, commit: Commit, rows: pa.Table | None) -> None:
        super().commit(commit, rows)
        raise ConnectionError("no answer")


def test_a_commit_whose_answer_was_lost_is_found_again(table: Shop) -> None:
    store = Forgetful("orders", "one", Database(table.url))
    batch = Batch({QUEUE: items(0, 1)}, {QUEUE: Span(0, 2)})
    attempt = Attempt(store, "one", batch, make=lambda batch: Made(rows_of(0, 1)), now=lambda: 1.0)
    with pytest.raises(ConnectionError):
        attempt.run()
    done = attempt.run()
    assert (done.head.sequence, done.rows) == (1, 2)
    assert table.ids() == [0, 1]


def test_an_owner_that_is_behind_is_fenced_before_its_rows_meet_those_of_the_other(table: Shop) -> None:
    """Otherwise a unique key would make bad rows of what the other owner has stored."""
    table.run("CREATE TABLE orders (id BIGINT PRIMARY KEY, text VARCHAR(20))")
    first, second = table.store(), table.store()
    head = second.load()
    put(first, "a", 0)
    with pytest.raises(FencedError):
        second.commit(commit_of(head, "b", {QUEUE: Span(0, 1)}, rows=1), rows_of(0))
    put(first, "c", 1)
    with pytest.raises(FencedError):
        second.commit(commit_of(Head(sequence=1), "d", {QUEUE: Span(1, 2)}, rows=1), rows_of(1))
    assert table.ids() == [0, 1]


def test_a_transaction_that_stands_still_does_not_keep_others_waiting(shop: Shop) -> None:
    with Database(shop.url).connected() as connection:
        assert connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar() == "30s"


def test_old_commits_are_forgotten_and_the_newest_one_stays(table: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketapp_lake.sql.KEPT", 3)
    store = table.store()
    for number in range(6):
        put(store, f"batch {number}", number)
    assert [commit.sequence for commit in store.commits()] == [6, 5, 4]
    assert (store.load().sequence, store.who_committed(6), store.who_committed(1)) == (6, "batch 5", None)


def test_commits_of_many_queues_are_kept_whole(table: Shop) -> None:
    queues = {QUEUE._replace(queue_id=n, broker_name=f"broker-{'x' * 50}-{n}"): Span(0, n + 1) for n in range(90)}
    table.store().commit(commit_of(Head(), "a", queues), None)
    assert dict(table.store().load().vector) == {queue: span.end for queue, span in queues.items()}
    assert next(table.store().commits()).spans == queues


# What the database refuses.


def placed(*numbers: int, **columns: Any) -> pa.Table:
    """Rows with the places of their messages."""
    count = len(numbers)
    own = {"id": pa.array(numbers, pa.int64()), "text": [f"row {number}" for number in numbers], **columns}
    place = {
        "_rmq_topic": [QUEUE.topic] * count,
        "_rmq_broker": [QUEUE.broker_name] * count,
        "_rmq_queue": pa.array([QUEUE.queue_id] * count, pa.int32()),
        "_rmq_offset": pa.array(numbers, pa.int64()),
    }
    return pa.table({**own, **place})


REFUSALS = {
    "a unique key": "id BIGINT PRIMARY KEY, text VARCHAR(20)",
    "a length": "id BIGINT, text VARCHAR(6) CHECK (length(text) < 7)",
    "NOT NULL": "id BIGINT, text VARCHAR(20) NOT NULL",
    "a CHECK": "id BIGINT CHECK (id <> 7), text VARCHAR(20)",
}


@pytest.mark.parametrize("kind", list(REFUSALS))
def test_rows_that_the_database_refuses_are_named_and_nothing_of_their_batch_is_there(table: Shop, kind: str) -> None:
    table.run(f"CREATE TABLE orders ({REFUSALS[kind]})")
    rows = placed(*range(40))
    texts, ids = rows["text"].to_pylist(), rows["id"].to_pylist()
    if kind == "a unique key":
        ids[7], ids[30] = 6, 2
    elif kind == "a length":
        texts[7] = texts[30] = "much too long"
    elif kind == "NOT NULL":
        texts[7] = texts[30] = None
    else:
        ids[30] = 7
    rows = rows.set_column(0, "id", pa.array(ids, pa.int64())).set_column(1, "text", pa.array(texts, pa.string()))
    with pytest.raises(RefusedRowsError) as refused:
        table.store().commit(commit_of(Head(), "a", {QUEUE: Span(0, 40)}, rows=40), rows)
    assert {place[1] for place in refused.value.places} == {7, 30}
    assert {place[0] for place in refused.value.places} == {QUEUE}
    assert (table.rows(), table.store().load()) == ([], Head())


def test_of_a_flood_of_refused_rows_the_first_ones_are_named(table: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketapp_lake.sql_loading.MOST_REFUSED", 5)
    table.run("CREATE TABLE orders (id BIGINT, text VARCHAR(20), missing BIGINT NOT NULL)")
    with pytest.raises(RefusedRowsError) as refused:
        table.store().commit(commit_of(Head(), "a", {QUEUE: Span(0, 500)}, rows=500), placed(*range(500)))
    assert [offset for _, offset in refused.value.places] == [0, 1, 2, 3, 4]


def test_a_refused_row_whose_place_was_dropped_stops_the_sink(table: Shop) -> None:
    table.run("CREATE TABLE orders (id BIGINT CHECK (id <> 7), text VARCHAR(20))")
    with pytest.raises(SinkError, match="the rows do not say where this one comes from"):
        table.store().commit(commit_of(Head(), "a", {QUEUE: Span(7, 8)}, rows=1), rows_of(7))


@dataclass
class Note:
    id: int
    text: str


class Notes:
    """An app with a sink into a table with a unique key, and what became of its messages."""

    def __init__(self, shop: Shop, **options: Any) -> None:
        self.topic, self.watch = f"notes{next(_numbers)}", Watch()
        self.app: Any = RocketApp("shop", plugins=[*lake_plugin(), self.watch])
        more = {"schema": Note, "flush_seconds": 0.2, "url": shop.url}
        self.app.sink(self.topic, table="notes", format="sql", **{**more, **options})


@pytest.fixture
def apps(rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__CRASH_DIR", "")
    monkeypatch.setenv("ROCKETAPP_CONSUMER__JOIN_TIMEOUT", "0")


OWN = "id BIGINT UNIQUE, text VARCHAR(20)"
NOTES = [Note(1, "a"), Note(2, "b"), Note(1, "c"), Note(3, "d")]


async def test_a_refused_row_stops_the_sink_by_default_until_the_table_takes_it(shop: Shop, apps: None) -> None:
    shop.run(f"CREATE TABLE notes ({OWN})", "INSERT INTO notes VALUES (3, 'theirs')")
    notes = Notes(shop)
    async with notes.app:
        await notes.app.publish_many(notes.topic, [Note(1, "a"), Note(3, "d")])
        await until(lambda: any("is refused by the table: " in reason for reason in notes.watch.reasons()))
        assert shop.ids("notes") == [3]
        shop.run("DELETE FROM notes")
        await until(lambda: shop.ids("notes") == [1, 3])


async def test_a_refused_row_is_stored_without_values_by_column(shop: Shop, apps: None) -> None:
    shop.run(f"CREATE TABLE notes ({OWN}, _rmq_problem TEXT, _rmq_body BYTEA)")
    notes = Notes(shop, bad_rows="column")
    async with notes.app:
        await notes.app.publish_many(notes.topic, NOTES)
        await until(lambda: len(shop.rows("notes")) == 4)
    (bad,) = [row for row in shop.rows("notes") if row["id"] is None]
    assert "duplicate key value violates unique constraint" in bad["_rmq_problem"]
    assert b'"id":1' in bad["_rmq_body"]


async def test_a_refused_row_is_in_the_table_of_bad_rows_once(table: Shop, apps: None) -> None:
    table.run(f"CREATE TABLE notes ({OWN})")
    notes = Notes(table, bad_rows="table")
    async with notes.app:
        await notes.app.publish_many(notes.topic, [*NOTES, {"id": "no number"}])
        await until(lambda: table.ids("notes") == [1, 2, 3])
        await until(lambda: len(table.rows("notes_bad")) == 2)
        await notes.app.publish_many(notes.topic, [Note(4, "e"), Note(2, "f")])
        await until(lambda: table.ids("notes") == [1, 2, 3, 4])
    bad = table.rows("notes_bad")
    assert len({(row["_rmq_queue"], row["_rmq_offset"]) for row in bad}) == len(bad) == 3


async def test_a_refused_row_is_published_to_a_topic(shop: Shop, apps: None) -> None:
    shop.run(f"CREATE TABLE notes ({OWN})")
    notes, seen = Notes(shop, bad_rows="topic", bad_rows_topic="refused-notes"), list[str]()

    @notes.app.subscribe("refused-notes", start="first", group="refused")
    async def bad(message: Message) -> None:
        seen.append(message.properties["rocketapp.reason"])

    async with notes.app:
        await notes.app.publish_many(notes.topic, NOTES)
        await until(lambda: shop.ids("notes") == [1, 2, 3])
        await until(lambda: len(seen) == 1)
    assert "duplicate key" in seen[0]


async def test_a_text_with_a_nul_which_postgresql_cannot_hold_is_a_bad_row(shop: Shop, apps: None) -> None:
    notes = Notes(shop, bad_rows="column")
    async with notes.app:
        await notes.app.publish_many(notes.topic, [Note(1, "a\0b"), Note(2, "a")])
        await until(lambda: len(shop.rows("notes")) == 2)
    found = sorted((row["id"] or 0, row["_rmq_problem"] or "") for row in shop.rows("notes"))
    assert (found[0][0], "invalid byte sequence" in found[0][1], found[1]) == (0, True, (2, ""))


async def test_a_bad_row_that_the_table_refuses_too_stops_the_sink(shop: Shop, apps: None) -> None:
    shop.run("CREATE TABLE notes (id BIGINT NOT NULL CHECK (id < 3), text TEXT, _rmq_problem TEXT, _rmq_body BYTEA)")
    notes = Notes(shop, bad_rows="column")
    async with notes.app:
        await notes.app.publish_many(notes.topic, NOTES)
        await until(lambda: any("is refused by the table: null value" in reason for reason in notes.watch.reasons()))
    assert shop.rows("notes") == []


# Merging.


def test_a_row_replaces_the_one_with_the_same_keys(table: Shop) -> None:
    store = table.store(merge_on=["id"])
    put(store, "a", 0, 1)
    rows = pa.table({"id": pa.array([1, 2, 1], pa.int64()), "text": ["first", "second", "third"]})
    store.commit(commit_of(store.load(), "b", {QUEUE: Span(2, 5)}, rows=3), rows)
    assert {row["id"]: row["text"] for row in table.rows()} == {0: "row 0", 1: "third", 2: "second"}


def test_keys_may_be_texts_and_several(table: Shop) -> None:
    store = table.store(merge_on=["shop", "id"])
    for sequence, count in enumerate([1, 2]):
        rows = pa.table({"shop": ["a", "b"], "id": pa.array([1, 1], pa.int64()), "count": pa.array([count] * 2)})
        store.commit(commit_of(store.load(), f"{sequence}", {QUEUE: Span(sequence, sequence + 1)}, rows=2), rows)
    assert sorted((row["shop"], row["count"]) for row in table.rows()) == [("a", 2), ("b", 2)]


def test_keys_that_the_database_alone_takes_for_the_same_replace_each_other(shop: Shop) -> None:
    shop.run("CREATE TABLE orders (id CHAR(4) PRIMARY KEY, text TEXT)")
    rows = pa.table({"id": ["a", "b", "a ", "c", "a  "], "text": [f"{number}" for number in range(5)]})
    shop.store(merge_on=["id"]).commit(commit_of(Head(), "a", {QUEUE: Span(0, 5)}, rows=5), rows)
    assert {row["id"].strip(): row["text"] for row in shop.rows()} == {"a": "4", "b": "1", "c": "3"}


def test_a_refused_row_is_found_while_others_are_merged(table: Shop) -> None:
    table.run("CREATE TABLE orders (id BIGINT PRIMARY KEY, text VARCHAR(20) CHECK (text <> 'row 7'))")
    with pytest.raises(RefusedRowsError) as refused:
        table.store(merge_on=["id"]).commit(commit_of(Head(), "a", {QUEUE: Span(0, 9)}, rows=9), placed(*range(9)))
    assert [offset for _, offset in refused.value.places] == [7]


def test_a_table_without_such_a_key_is_refused(table: Shop) -> None:
    table.run("CREATE TABLE orders (id BIGINT, text VARCHAR(20))")
    with pytest.raises(SinkError, match=r"merge_on=\['id'\]: orders has no unique key of just these columns"):
        put(table.store(merge_on=["id"]), "a", 0)


def test_a_database_that_cannot_is_refused_by_name(table: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rocketapp_lake.sql_loading._MERGING", {"other": None})
    with pytest.raises(SinkError, match="is not one of the databases that format='sql' knows: other"):
        table.store()


# Tables.


STORED = datetime(2026, 11, 22, 1, 2, 3, 456789, UTC)
KINDS = {
    "id": ([1, 2, 3], pa.int64()),
    "ratio": ([1.5, None, -0.25], pa.float64()),
    "text": (["ä'\"\\,\n", None, ""], pa.string()),
    "raw": ([b"\0x", None, b""], pa.binary()),
    "is_paid": ([True, None, False], pa.bool_()),
    "at": ([STORED, None, STORED], pa.timestamp("us", tz="UTC")),
    "day": ([date(2026, 1, 2), None, date(1969, 1, 1)], pa.date32()),
    "price": ([Decimal("1.123456789"), None, Decimal(-5)], pa.decimal128(38, 9)),
    "small": ([1, None, -1], pa.int32()),
    "short": (["a", None, "a"], pa.dictionary(pa.int32(), pa.string())),
    "tags": ([["a", "b"], None, []], pa.list_(pa.string())),
    "by_key": ([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
}


def test_every_kind_of_column_is_stored_as_it_was(table: Shop) -> None:
    rows = pa.table({name: pa.array(values, kind) for name, (values, kind) in KINDS.items()})
    store = table.store(table="kinds")
    store.commit(commit_of(Head(), "a", {QUEUE: Span(0, 3)}, rows=3), rows)
    found = [dict(row) for row in _typed(table, "kinds")]
    for row in found:
        row["at"] = row["at"] and row["at"].replace(tzinfo=UTC)
        row["price"] = row["price"] and Decimal(row["price"])
        row["by_key"] = None if row["by_key"] is None else list(row["by_key"].items())
        row["is_paid"] = None if row["is_paid"] is None else bool(row["is_paid"])
    assert found == rows.to_pylist()


def _typed(table: Shop, name: str) -> list[Any]:
    with table.engine.connect() as connection:
        found = sa.Table(name, sa.MetaData(), autoload_with=connection)
        for column in ("tags", "by_key"):
            found.c[column].type = sa.JSON()  # MariaDB keeps it as a text
        return list(connection.execute(sa.select(found).order_by(found.c.id)).mappings())


def test_a_column_that_the_table_lacks_is_refused_in_one_line_before_anything_is_loaded(table: Shop) -> None:
    table.run("CREATE TABLE orders (id BIGINT)")
    with pytest.raises(SinkError, match=r"^orders has no column text: it has id$"):
        table.store().check(rows_of(0))
    with pytest.raises(SinkError, match=r"^orders has no column text: it has id$"):
        put(table.store(), "a", 0)
    assert (table.rows(), table.store().load()) == ([], Head())


def test_a_table_that_was_mended_is_taken_without_a_restart(table: Shop) -> None:
    table.run("CREATE TABLE orders (id BIGINT)")
    store = table.store()
    with pytest.raises(SinkError):
        put(store, "a", 0)
    table.run("ALTER TABLE orders ADD COLUMN text VARCHAR(20)")
    put(store, "a", 0)
    assert table.ids() == [0]


def test_a_table_of_others_may_have_more_columns_and_lack_those_of_the_sink(table: Shop) -> None:
    table.run("CREATE TABLE orders (text VARCHAR(9), note VARCHAR(9) DEFAULT 'none', id BIGINT PRIMARY KEY)")
    table.store().commit(commit_of(Head(), "a", {QUEUE: Span(5, 7)}, rows=2), placed(5, 6))
    rows = sorted(table.rows(), key=lambda row: row["id"])
    assert rows == [{"text": f"row {n}", "note": "none", "id": n} for n in (5, 6)]


def test_a_table_may_be_in_a_schema_and_its_positions_are_too(shop: Shop) -> None:
    shop.run("CREATE SCHEMA lake", "CREATE TABLE lake.orders (id BIGINT, text TEXT, tags TEXT[])")
    rows = rows_of(5).append_column("tags", pa.array([["a", "b"]]))
    store = shop.store(table="lake.orders")
    store.commit(commit_of(Head(), "a", {QUEUE: Span(5, 6)}, rows=1), rows)
    assert dict(shop.store(table="lake.orders").load().vector) == {QUEUE: 6}
    assert shop.rows("rmq_commits") == []
    with shop.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT tags FROM lake.orders").scalar() == ["a", "b"]


def test_a_table_grows_by_a_column_when_its_first_rows_come(table: Shop) -> None:
    with_note = rows_of(1).append_column("note", pa.array(["note 1"]))
    for number, rows in enumerate([rows_of(0), with_note, rows_of(2)]):
        batch = Batch({QUEUE: items(number)}, {QUEUE: Span(number, number + 1)})
        Attempt(
            table.store(), "one", batch, make=lambda _, rows=rows: Made(rows), now=lambda: 1.0, evolution="add"
        ).run()
    assert {row["id"]: row["note"] for row in table.rows()} == {0: None, 1: "note 1", 2: None}


def test_columns_that_databases_do_not_have_are_refused_by_name(table: Shop) -> None:
    rows = pa.table({"took": pa.array([1], pa.duration("us"))})
    with pytest.raises(SinkError, match=r"column took is duration\[us\], for which databases have no type"):
        table.store().commit(commit_of(Head(), "a", {QUEUE: Span(0, 1)}, rows=1), rows)


if databases.HAS_MARIADB:

    def test_a_table_without_transactions_is_refused(mariadb: str) -> None:
        shop = Shop(databases.create_database(mariadb))
        shop.run("CREATE TABLE orders (id BIGINT, text TEXT) ENGINE=MyISAM")
        with pytest.raises(SinkError, match="orders is kept by MyISAM, which has no transactions"):
            shop.store().check(rows_of(0))


# The command.


def test_the_command_shows_the_sinks_of_a_table(table: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table.store("shop/orders"), "a", 0, 1, sink="shop/orders")
    put(table.store("shop/orders"), "b", 2, sink="shop/orders")
    expected = [
        "shop/orders: commit 2 at 1970-01-01T00:00:01+00:00, 3 rows",
        "  orders@broker-a:0  next #3",
        "  commit 2 at 1970-01-01T00:00:01+00:00: 1 rows of orders@broker-a:0 #2-#2",
    ]
    shown = CliRunner().invoke(command, ["show", "orders", "--url", table.url, "--commits", "1"])
    assert shown.output.splitlines() == expected
    monkeypatch.setenv("ROCKETAPP_LAKE__DATABASE", table.url)
    assert CliRunner().invoke(command, ["show", "orders", "--commits", "1"]).output.splitlines() == expected
    empty = CliRunner().invoke(command, ["show", "orders", "--url", ""])
    assert (empty.exit_code, "has no database" in empty.output) == (1, True)
    other = CliRunner().invoke(command, ["show", "others"])
    assert (other.exit_code, "others is not the table of a sink" in other.output) == (2, True)


def test_the_command_sets_positions(table: Shop) -> None:
    put(table.store("shop/orders"), "a", 0, 1, sink="shop/orders")
    arguments = ["rebase", "orders", "--url", table.url, "--to", "orders@broker-a:0=1"]
    dry = CliRunner().invoke(command, [*arguments, "--dry-run"])
    assert dry.output.splitlines()[-1] == "nothing was changed: --dry-run"
    assert table.store("shop/orders").load().sequence == 1
    done = CliRunner().invoke(command, arguments)
    assert done.output.splitlines() == ["shop/orders:", "  orders@broker-a:0  #2 -> #1", "  commit 2"]
    assert dict(table.store("shop/orders").load().vector) == {QUEUE: 1}


# Secrets.


def test_passwords_are_in_no_repr_error_or_log(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    put(shop.store(), "a", 0)
    url = sa.make_url(shop.url)
    wrong = url.set(password="hidden").update_query_dict({"application_name": "concealed"})
    with pytest.raises(DatabaseError) as refused:
        Shop(wrong.render_as_string(hide_password=False)).store().load()
    with pytest.raises(SinkError) as unreadable:
        Database("hidden:concealed@db/shop")
    with pytest.raises(SinkError) as unknown:
        Database("nobase://me:hidden@db/shop?key=concealed")
    app: Any = RocketApp("shop")
    with pytest.raises(SetupError) as declared:
        app.sink("orders", table="orders", format="sql", url="hidden:concealed@db")
    shown = [repr(Database(shop.url)), repr(shop.store()), caplog.text]
    for text in (*shown, *(str(one.value) for one in (refused, unreadable, unknown, declared))):
        assert not any(word in text for word in (postgres.PASSWORD, "hidden", "concealed", "open%20sesame")), text


async def test_the_url_comes_from_the_settings(table: Shop, apps: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROCKETAPP_LAKE__DATABASE", table.url)
    notes = Notes(table, url=None)
    async with notes.app:
        await notes.app.publish(notes.topic, Note(1, "a"))
        await until(lambda: table.ids("notes") == [1])
    assert table.ids("notes") == [1]


async def test_without_a_url_the_app_does_not_start(table: Shop, apps: None) -> None:
    with pytest.raises(SetupError, match=r"format='sql' has no database: give url=, or lake\.database"):
        async with Notes(table, url=None).app:
            pass


# Declarations.


@cases(
    "options, problem",
    [
        ({"url": "db/shop"}, "url= is a text as postgresql+psycopg://"),
        ({"merg_on": "id"}, "merg_on= is unknown: merge_on= is meant?"),
        ({"merge_on": [5]}, "merge_on=(5,): Expected `str`, got `int`"),
        ({"written_by": "spark"}, "written_by= is for format='parquet' or format='delta'"),
        ({"table": "a.b.c"}, "table='a.b.c': give the name of a table"),
        ({"partition_by": "day"}, "partition_by= is for format='parquet' or format='delta' or format='iceberg'"),
        ({"name": "x" * 201}, "is too long"),
    ],
)
def test_what_cannot_work_is_refused_where_it_is_written(options: dict[str, Any], problem: str) -> None:
    app: Any = RocketApp("shop")
    with pytest.raises(SetupError) as caught:
        app.sink("orders", **{"table": "orders", "format": "sql", "url": "sqlite://", **options})
    assert problem in caught.value.problem
