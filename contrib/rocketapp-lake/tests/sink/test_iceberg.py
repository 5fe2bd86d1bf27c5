"""An Iceberg table passes the suite of stores, beside other writers, and when snapshots expire or are rolled back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import DayTransform
from sink_shop import Order, lake_plugin, until

from rocketapp import RocketApp
from rocketapp_lake import sink
from rocketapp_lake.commands import command
from rocketapp_lake.conformance import LANE, OTHER, GrowingSuite, Span, StoreSuite, commit_of, put, rows_of
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.iceberg import IcebergStore


def write(rows: pa.Table, directory: Path) -> None:
    directory.mkdir(parents=True)
    for number in range(min(2, rows.num_rows)):
        pq.write_table(rows.take(list(range(number, rows.num_rows, 2))), directory / f"part-{number}.parquet")


class Lake:
    """An Iceberg table in a catalog on SQLite, read by Iceberg's library."""

    def __init__(self, path: Path, name: str = "shop.orders") -> None:
        self.path, self.name = path, name
        self.opened: list[SqlCatalog] = []

    def catalog(self) -> SqlCatalog:
        found = SqlCatalog("lake", uri=f"sqlite:///{self.path}/catalog.db", warehouse=f"file://{self.path}")
        self.opened.append(found)
        return found

    def store(self, sink: str) -> IcebergStore:
        return IcebergStore(self.catalog, self.name, sink, write=write)

    def table(self) -> Table:
        return self.catalog().load_table(self.name)

    def rows(self) -> Sequence[Mapping[str, Any]]:
        try:
            found: list[dict[str, Any]] = self.table().scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return []
        return found

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def append(self, *numbers: int) -> None:
        """By another writer."""
        self.table().append(rows_of(*numbers))

    def rewrite(self) -> None:
        """What a compaction does: all rows in new files, by a snapshot that says nothing of a sink."""
        table = self.table()
        table.overwrite(table.scan().to_arrow())

    def expire(self) -> None:
        """All snapshots but the newest, which is another writer's."""
        self.append(1000)
        self.table().maintenance.expire_snapshots().older_than(datetime.now(UTC) + timedelta(days=1)).commit()

    def roll_back(self, commits: int) -> None:
        table = self.table()
        snapshot = table.current_snapshot()
        for _ in range(commits):
            assert snapshot is not None and snapshot.parent_snapshot_id is not None
            snapshot = table.snapshot_by_id(snapshot.parent_snapshot_id)
        assert snapshot is not None
        table.manage_snapshots().rollback_to_snapshot(snapshot.snapshot_id).commit()


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Lake]:
    lake = Lake(tmp_path)
    yield lake
    for catalog in lake.opened:
        catalog.engine.dispose()


class TestIceberg(StoreSuite, GrowingSuite):
    """The suites of all stores."""


OTHERS: dict[str, Callable[[Lake], object]] = {
    "append": lambda lake: lake.append(100),
    "rewrite": Lake.rewrite,
    "property": lambda lake: lake.table().transaction().set_properties({"owner": "shop"}).commit_transaction(),
}


class Between:
    """Does something once, after a publication has looked at the table and before it commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call
        self.attempts = 0
        prepare = IcebergStore._transaction

        def late(*arguments: Any) -> Any:
            self.attempts += 1
            prepared = prepare(*arguments)
            once, self._call = self._call, None
            if once is not None:
                once()
            return prepared

        monkeypatch.setattr(IcebergStore, "_transaction", late)


@pytest.mark.parametrize("other", OTHERS)
def test_commits_of_others_between_look_and_commit_lose_nothing(
    table: Lake, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(table.store("one"), "a", 0, 1)
    put(table.store("one"), "b", 2)
    between = Between(monkeypatch, lambda: OTHERS[other](table))
    put(table.store("one"), "c", 3)
    assert [number for number in table.ids() if number < 100] == [0, 1, 2, 3]
    assert (100 in table.ids()) == (other == "append")
    assert between.attempts == (1 if other == "property" else 2)
    assert dict(table.store("one").load().vector) == {LANE: 4}
    assert other != "property" or table.table().properties["owner"] == "shop"


def test_of_two_publishers_of_one_number_the_later_one_is_fenced(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table.store("one"), "a", 0)
    first, second = table.store("one"), table.store("one")
    head = second.load()
    staged = second._stage_rows("b", rows_of(1))
    Between(monkeypatch, lambda: put(first, "c", 1))
    with pytest.raises(FencedError, match="sink one is at commit 2"):
        second._publish(commit_of(head, "b", {LANE: Span(1, 2)}, rows=1), staged)
    assert table.ids() == [0, 1]
    assert table.store("one").who_committed(2) == "c"
    second._publish(commit_of(second.load(), "b", {OTHER: Span(1, 2)}, rows=1), staged)
    assert table.ids() == [0, 1, 1]


def test_a_commit_without_rows_is_fenced_as_well(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table.store("one"), "a", 0)
    first, second = table.store("one"), table.store("one")
    head = second.load()
    Between(monkeypatch, lambda: put(first, "c", 1))
    with pytest.raises(FencedError):
        second._publish(commit_of(head, "b", {OTHER: Span(0, 5)}), None)
    assert dict(table.store("one").load().vector) == {LANE: 2}


def test_a_commit_that_its_catalog_calls_failed_and_has_made_is_published(
    table: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Transaction.commit_transaction

    def made(transaction: Transaction) -> Table:
        commit(transaction)
        raise CommitFailedException("the answer was lost")

    store = table.store("one")
    staged = store._stage_rows("a", rows_of(0, 1))
    monkeypatch.setattr(Transaction, "commit_transaction", made)
    store._publish(commit_of(store.load(), "a", {LANE: Span(0, 2)}, rows=2), staged)
    assert table.ids() == [0, 1]
    assert table.store("one").who_committed(1) == "a"


def test_positions_outlive_what_others_do(table: Lake) -> None:
    put(table.store("one"), "a", 0, 1)
    put(table.store("one"), "b", 7, lane=OTHER)
    for other in OTHERS.values():
        other(table)
    head = table.store("one").load()
    assert (head.sequence, dict(head.vector)) == (2, {LANE: 2, OTHER: 8})
    assert table.store("one").who_committed(1) == "a"


def test_positions_outlive_their_snapshots(table: Lake) -> None:
    put(table.store("one"), "a", 0, 1)
    put(table.store("one"), "b", 7, lane=OTHER)
    table.expire()
    assert len(table.table().snapshots()) == 1
    head = table.store("one").load()
    assert (head.sequence, head.batch, dict(head.vector)) == (2, "b", {LANE: 2, OTHER: 8})
    assert table.store("one").who_committed(2) == "b"
    put(table.store("one"), "c", 2)
    assert table.ids() == [0, 1, 2, 7, 1000]


def test_a_table_that_was_rolled_back_stops_its_sink_with_the_mend(table: Lake) -> None:
    for number, batch in enumerate("abc"):
        put(table.store("one"), batch, number)
    head, late = table.store("one").load(), table.store("one")
    staged = late._stage_rows("d", rows_of(3))
    newest = table.table().current_snapshot()
    table.roll_back(1)
    mend = r"rolled back to commit 2 of sink one, which has made 3: .*rocketapp sink rebase"
    for _ in range(2):
        with pytest.raises(SinkError, match=mend):
            table.store("one").load()
        with pytest.raises(SinkError, match=mend):
            table.store("one").who_committed(3)
        with pytest.raises(SinkError, match=mend):
            late._publish(commit_of(head, "d", {LANE: Span(3, 4)}, rows=1), staged)
        table.append(100)  # nor does it go unseen behind what others add
    assert table.ids() == [0, 1, 100, 100]
    assert newest is not None
    table.table().manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()
    late._publish(commit_of(late.load(), "d", {LANE: Span(3, 4)}, rows=1), staged)
    assert table.ids() == [0, 1, 2, 3]


def test_a_sink_goes_on_behind_the_rows_of_a_table_that_was_rolled_back(
    table: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, lane in enumerate((LANE, LANE, OTHER)):
        put(table.store("one"), f"batch{number}", number, lane=lane)
    table.roll_back(2)
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", lambda name: table.catalog())
    arguments = ["rebase", "lake.shop.orders", "--to", f"{LANE}=1"]
    assert f"{LANE}  #1 -> #1" in CliRunner().invoke(command, arguments).output
    assert (table.store("one").load().sequence, dict(table.store("one").load().vector)) == (4, {LANE: 1})
    put(table.store("one"), "d", 1)
    assert table.ids() == [0, 1]


def test_a_table_that_was_rolled_back_to_before_its_first_commit_is_noticed(table: Lake) -> None:
    table.store("one")._stage_rows("z", rows_of(0))
    table.append(100)
    put(table.store("one"), "a", 0)
    table.roll_back(1)
    with pytest.raises(SinkError, match="rolled back to commit 0 of sink one, which has made 1"):
        table.store("one").load()


@pytest.mark.parametrize(
    ("columns", "problem"),
    [({"id": ["zero"], "text": ["x"]}, "do not fit the table"), ({"id": [0], "more": [1]}, "do not fit the table")],
)
def test_files_that_do_not_fit_the_table_are_refused(table: Lake, columns: dict[str, list[Any]], problem: str) -> None:
    put(table.store("two"), "z", 100, sink="two")
    store = table.store("one")
    staged = store._stage_rows("a", pa.table(columns))
    with pytest.raises(SinkError, match=problem):
        store._publish(commit_of(store.load(), "a", {LANE: Span(0, 1)}, rows=1), staged)
    assert table.ids() == [100]


def test_the_first_commit_may_be_without_rows(table: Lake) -> None:
    put(table.store("one"), "a")
    assert {"_rmq_topic", "_rmq_offset"} <= set(table.table().schema().column_names)
    assert (table.rows(), dict(table.store("one").load().vector)) == ([], {LANE: 1})


@pytest.mark.parametrize(
    ("place", "problem"),
    [
        ("s3://bucket/orders", "have to be on a local or network file system"),
        ("lake/orders", "depends on where a program runs"),
        ("file://lake/orders", "depends on where a program runs"),
    ],
)
def test_files_elsewhere_are_refused(place: str, problem: str) -> None:
    class Bucket:
        properties: Mapping[str, str] = {}

        def load_table(self, name: str) -> Bucket:
            return self

        def location(self) -> str:
            return place

    store = IcebergStore(Bucket, "shop.orders", "one", write=write)  # type: ignore[arg-type]
    with pytest.raises(SinkError, match=f"{place}: .* {problem}"):
        store._stage_rows("a", rows_of(0))


def test_show_reads_an_iceberg_table(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table.store("shop/one"), "a", 0, 1, sink="shop/one")
    put(table.store("shop/one"), "b", 7, lane=OTHER, sink="shop/one")
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", lambda name: table.catalog())

    def shown() -> list[str]:
        return CliRunner().invoke(command, ["show", "lake.shop.orders"]).output.splitlines()

    lanes = ["  orders@broker-a:0  next #2", "  orders@broker-a:1  next #8"]
    assert shown() == ["shop/one: commit 2 at 1970-01-01T00:00:01+00:00, 3 rows", *lanes]
    table.expire()
    assert shown() == ["shop/one: commit 2 at 1970-01-01T00:00:01+00:00, 1 rows since commit 2", *lanes]


def test_show_says_in_one_line_that_a_table_is_not_there(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", lambda name: table.catalog())
    done = CliRunner().invoke(command, ["show", "lake.shop.orders"])
    assert (done.exit_code, done.output.splitlines()[-1]) == (
        2,
        "Error: lake.shop.orders: Table does not exist: shop.orders",
    )


@pytest.mark.timeout(300)
async def test_a_topic_lands_in_an_iceberg_table(
    rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch, table: Lake
) -> None:
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__CRASH_DIR", "")
    monkeypatch.setenv("ROCKETAPP_CONSUMER__JOIN_TIMEOUT", "0")
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", lambda name: table.catalog())
    app = RocketApp("shop", plugins=lake_plugin())
    options: dict[str, Any] = {"format": "iceberg", "schema": Order, "flush_seconds": 0.2, "partition_by": "day"}
    topic = "iceberg-orders"
    sink(app, topic, table="lake.shop.orders", **options)
    async with app:
        await app.publish_many(topic, [Order(number, f"item {number}") for number in range(20)])
        await until(lambda: len(table.rows()) == 20)
    found = table.rows()
    assert sorted((row["id"], row["item"]) for row in found) == [(number, f"item {number}") for number in range(20)]
    assert all(row["_rmq_store_ts"].utcoffset() == timedelta(0) for row in found)
    (field,) = table.table().spec().fields
    assert (field.name, field.transform) == ("rmq_day", DayTransform())
    days = {file["partition"]["rmq_day"] for file in table.table().inspect.files().to_pylist()}
    assert days == {row["_rmq_store_ts"].date() for row in found}


class DyingOnce(SqlCatalog):
    """Its first commit of a table that is there is not made."""

    def commit_table(self, table: Table, requirements: Any, updates: Any) -> Any:
        if self.table_exists(table.name()):
            raise KeyboardInterrupt
        return super().commit_table(table, requirements, updates)


def test_a_table_has_its_partition_from_the_commit_that_creates_it(table: Lake) -> None:
    where = {"uri": f"sqlite:///{table.path}/catalog.db", "warehouse": f"file://{table.path}"}
    dying = DyingOnce("lake", **where)
    table.opened.append(dying)
    rows = pa.table({"id": [0], "_rmq_store_ts": pa.array([0], pa.timestamp("us", "UTC"))})
    with suppress(KeyboardInterrupt):
        IcebergStore(lambda: dying, table.name, "one", write=write, partition_by="day")._stage_rows("a", rows)
    IcebergStore(table.catalog, table.name, "one", write=write, partition_by="day")._stage_rows("b", rows)
    assert [field.name for field in table.table().spec().fields] == ["rmq_day"]


def test_what_a_commit_is_made_of_survives_a_power_cut(table: Lake, synced: set[Path]) -> None:
    put(table.store("one"), "a", 0)
    made = table.table()
    snapshot = made.current_snapshot()
    assert snapshot is not None
    manifests = [manifest.manifest_path for manifest in snapshot.manifests(made.io)]
    places = [made.metadata_location, snapshot.manifest_list, *manifests]
    assert {Path(place.removeprefix("file://")) for place in places} <= synced
