"""An Iceberg table passes the suite of stores, beside other writers, and when snapshots expire or are rolled back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
import s3
from click.testing import CliRunner
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table, Transaction
from pyiceberg.transforms import DayTransform, parse_transform
from pyiceberg.types import StringType
from sink_shop import Order, lake_plugin, until
from store_suite import OTHER, QUEUE, Span, StoreSuite, commit_of, put, rows_of

from rocketapp import RocketApp
from rocketapp_lake import iceberg, sink
from rocketapp_lake.commands import command
from rocketapp_lake.committer import rebase
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.iceberg import IcebergStore, partition_of
from rocketapp_lake.records import Head


class Lake:
    """An Iceberg table in a catalog on SQLite, read by Iceberg's library."""

    def __init__(self, path: Path, **where: str) -> None:
        """`where`: settings of the catalog; without, its files are in `path`."""
        self.path, self.name = path, "shop.orders"
        self.where = {"uri": f"sqlite:///{self.path}/catalog.db", "warehouse": f"file://{self.path}", **where}
        self.opened: list[SqlCatalog] = []

    def catalog(self) -> SqlCatalog:
        found = SqlCatalog("lake", **self.where)
        self.opened.append(found)
        return found

    def store(self, sink: str, **options: Any) -> IcebergStore:
        return IcebergStore(self.catalog, self.name, sink, **options)

    def table(self) -> Table:
        return self.catalog().load_table(self.name)

    def create(self, columns: Any, **options: Any) -> Table:
        """A table that is not the sink's own."""
        catalog = self.catalog()
        catalog.create_namespace_if_not_exists("shop")
        return catalog.create_table(self.name, columns, **options)

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


def commit_rows(store: IcebergStore, rows: pa.Table | None, batch: str = "a") -> None:
    """Each row is a message of QUEUE."""
    head = store.load()
    start = head.vector.get(QUEUE, 0)
    count = 1 if rows is None else rows.num_rows
    store.commit(commit_of(head, batch, {QUEUE: Span(start, start + count)}, rows=count), rows)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Lake]:
    yield from closed(Lake(tmp_path))


@pytest.fixture
def bucket(tmp_path: Path, endpoint: str) -> Iterator[Lake]:
    """Its files are on an S3 server, beside those of other tests."""
    secrets = {"s3.access-key-id": s3.KEY, "s3.secret-access-key": s3.SECRET}
    where = {"warehouse": f"s3://{s3.BUCKET}/{uuid4().hex}", "s3.endpoint": endpoint, "s3.region": s3.REGION}
    yield from closed(Lake(tmp_path, **where, **secrets))


def closed(lake: Lake) -> Iterator[Lake]:
    yield lake
    for catalog in lake.opened:
        catalog.engine.dispose()


class TestIceberg(StoreSuite):
    """The suites of all stores."""


class TestIcebergOnS3(StoreSuite):
    """The same in a bucket."""

    @pytest.fixture
    def table(self, bucket: Lake) -> Lake:
        return bucket


OTHERS: dict[str, Callable[[Lake], object]] = {
    "append": lambda lake: lake.append(100),
    "rewrite": Lake.rewrite,
    "property": lambda lake: lake.table().transaction().set_properties({"owner": "shop"}).commit_transaction(),
}


class Between:
    """Does something once, after a commit has looked at the table and before it is made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call
        made = Transaction.commit_transaction

        def late(transaction: Transaction) -> Table:
            once, self._call = self._call, None
            if once is not None:
                once()
            return made(transaction)

        monkeypatch.setattr(Transaction, "commit_transaction", late)


@pytest.mark.parametrize("other", OTHERS)
def test_commits_of_others_between_look_and_commit_lose_nothing(
    table: Lake, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(table.store("one"), "a", 0, 1)
    put(table.store("one"), "b", 2)
    Between(monkeypatch, lambda: OTHERS[other](table))
    put(table.store("one"), "c", 3)
    assert [number for number in table.ids() if number < 100] == [0, 1, 2, 3]
    assert (100 in table.ids()) == (other == "append")
    assert dict(table.store("one").load().vector) == {QUEUE: 4}
    assert other != "property" or table.table().properties["owner"] == "shop"


def test_of_two_publishers_of_one_number_the_later_one_is_fenced(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table.store("one"), "a", 0)
    first, second = table.store("one"), table.store("one")
    head = second.load()
    Between(monkeypatch, lambda: put(first, "c", 1))
    with pytest.raises(FencedError, match="sink one is at commit 2"):
        second.commit(commit_of(head, "b", {QUEUE: Span(1, 2)}, rows=1), rows_of(3))
    assert table.ids() == [0, 1]
    assert table.store("one").who_committed(2) == "c"
    files = list(table.path.rglob("*.parquet"))
    assert len(files) == 2, "what was written in vain is gone"
    second.commit(commit_of(second.load(), "b", {OTHER: Span(1, 2)}, rows=1), rows_of(3))
    assert table.ids() == [0, 1, 3]


def test_a_commit_without_rows_is_fenced_as_well(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table.store("one"), "a", 0)
    first, second = table.store("one"), table.store("one")
    head = second.load()
    Between(monkeypatch, lambda: put(first, "c", 1))
    with pytest.raises(FencedError):
        second.commit(commit_of(head, "b", {OTHER: Span(0, 5)}), None)
    assert dict(table.store("one").load().vector) == {QUEUE: 2}


def test_a_commit_that_its_catalog_calls_failed_and_has_made_is_published(
    table: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = Transaction.commit_transaction

    def made(transaction: Transaction) -> Table:
        commit(transaction)
        raise CommitFailedException("the answer was lost")

    store = table.store("one")
    table.create(rows_of(0).schema)
    monkeypatch.setattr(Transaction, "commit_transaction", made)
    commit_rows(store, rows_of(0, 1))
    assert table.ids() == [0, 1]
    assert table.store("one").who_committed(1) == "a"


@pytest.mark.parametrize("rows", [None, rows_of(5)], ids=["without rows", "with rows"])
def test_a_stale_owner_does_not_land_in_a_table_of_somebody_else(table: Lake, rows: pa.Table | None) -> None:
    table.create(rows_of(0).schema)
    first, second = table.store("one"), table.store("one")
    commit_rows(first, rows_of(0))
    head = second.load()
    commit_rows(first, rows_of(1))
    table.append(100)
    with pytest.raises(FencedError):
        second.commit(commit_of(head, "b", {QUEUE: Span(1, 2)}), rows)
    assert table.ids() == [0, 1, 100]
    assert {name for name in table.table().properties if not name.startswith("rocketapp.sink.")} <= {
        "write.parquet.compression-codec"
    }


@pytest.mark.timeout(120)
def test_a_sink_is_not_starved_by_a_writer_that_appends_ten_times_a_second(table: Lake) -> None:
    table.create(rows_of(0).schema)
    table.append(1000)
    stop = threading.Event()

    def append() -> None:
        while not stop.wait(0.1):
            with suppress(CommitFailedException):
                table.append(1000)

    other = threading.Thread(target=append)
    other.start()
    try:
        store = table.store("one")
        for number in range(10):
            commit_rows(store, rows_of(number), f"batch{number}")
    finally:
        stop.set()
        other.join()
    assert [number for number in table.ids() if number < 1000] == list(range(10))


def test_values_of_a_dropped_column_do_not_come_back_in_a_new_one_of_its_name(table: Lake) -> None:
    commit_rows(table.store("one"), rows_of(0))
    with table.table().update_schema() as update:
        update.delete_column("text")
    with table.table().update_schema() as update:
        update.add_column("text", StringType())
    commit_rows(table.store("one"), rows_of(1), "b")
    assert {row["id"]: row["text"] for row in table.rows()} == {0: None, 1: "row 1"}


def test_a_required_column_of_somebody_elses_table_is_written_and_minded(table: Lake) -> None:
    table.create(pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())]))
    store = table.store("one")
    commit_rows(store, rows_of(0))
    for rows in (pa.table({"id": pa.array([None], pa.int64())}), pa.table({"text": ["x"]})):
        for refuses in (store.check, lambda rows: commit_rows(store, rows)):
            with pytest.raises(SinkError, match="column id is required: 1 of 1 rows lack it"):
                refuses(rows)
    assert table.ids() == [0]


PARTITIONS = ["text", "bucket(4, id)", "truncate(3, text)", "month(at)", "day"]


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("is_ours", [True, False])
def test_a_table_is_partitioned_by_any_transform(table: Lake, partition: str, is_ours: bool) -> None:
    times = pa.array([0, 10**15, 10**15], pa.timestamp("us", "UTC"))
    rows = rows_of(0, 1, 2).append_column("at", times).append_column("_rmq_store_ts", times)
    column, transform, name = partition_of(partition)
    if not is_ours:
        table.create(rows.schema)
        with table.table().update_spec() as update:
            update.add_field(column, parse_transform(transform), name)
    store = table.store("one", partition_by=[partition] if is_ours else [], sort_by=["text"])
    commit_rows(store, rows.take([2, 0, 1]))
    (field,) = table.table().spec().fields
    assert (field.name, str(field.transform)) == (name, transform)
    assert table.ids() == [0, 1, 2]
    assert {file["partition"].get(name) is not None for file in table.table().inspect.files().to_pylist()} == {True}


@pytest.mark.parametrize("text", ["bucket(id)", "half(id)", "bucket(4, id", "", "a,b", "bucket(x, id)"])
def test_what_is_no_partition_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"partition_by=.*give a column, or a transform of one"):
        partition_of(text)


def test_a_table_that_cannot_be_written_is_refused_in_one_line(table: Lake) -> None:
    table.create(rows_of(0).schema, properties={"write.format.default": "orc"})
    with pytest.raises(SinkError, match=r"pyiceberg cannot write the rows: .*ORC") as raised:
        commit_rows(table.store("one"), rows_of(0))
    assert "\n" not in str(raised.value)
    assert table.table().current_snapshot() is None


def test_columns_and_partitions_come_with_the_first_rows(table: Lake) -> None:
    store = table.store("one", partition_by=["text"])
    commit_rows(store, None)
    store.check(rows_of(1))
    commit_rows(store, rows_of(1), "b")
    assert table.ids() == [1]
    assert [field.name for field in table.table().spec().fields] == ["text"]


def test_what_a_commit_writes_is_bounded_and_nothing_of_the_table_is_lost(
    table: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(iceberg.NEW, iceberg.KEEP, "5")
    monkeypatch.setitem(iceberg.NEW, "write.metadata.previous-versions-max", "5")
    monkeypatch.setitem(iceberg.NEW, "commit.manifest.min-count-to-merge", "4")
    store, idle = table.store("one"), table.store("two")
    put(idle, "z", 100, sink="two")
    for number in range(30):
        commit_rows(store, rows_of(number), f"batch{number}")
    assert len(table.table().snapshots()) <= 10
    kept = list((table.path / "shop").rglob("metadata/*"))
    assert len([one for one in kept if one.suffix == ".json"]) <= 7
    assert len(kept) < 40
    assert table.ids() == [*range(30), 100]
    assert (table.store("two").load().sequence, table.store("one").load().sequence) == (1, 30)
    table.table().scan(snapshot_id=table.table().snapshots()[0].snapshot_id).to_arrow()


def test_snapshots_of_somebody_elses_table_stay(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(iceberg.NEW, iceberg.KEEP, "1")
    table.create(rows_of(0).schema)
    for number in range(6):
        commit_rows(table.store("one"), rows_of(number), f"batch{number}")
    assert len(table.table().snapshots()) == 6


def test_a_number_of_snapshots_that_is_none_keeps_all_of_them_and_fails_no_commit(
    table: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(iceberg.NEW, iceberg.KEEP, "many")
    for number in range(3):
        put(table.store("one"), f"batch{number}", number)
    assert len(table.table().snapshots()) == 3
    assert "old snapshots of shop.orders stay for now: " in caplog.text


def test_positions_outlive_what_others_do(table: Lake) -> None:
    put(table.store("one"), "a", 0, 1)
    put(table.store("one"), "b", 7, queue=OTHER)
    for other in OTHERS.values():
        other(table)
    head = table.store("one").load()
    assert (head.sequence, dict(head.vector)) == (2, {QUEUE: 2, OTHER: 8})
    assert table.store("one").who_committed(1) == "a"


def test_positions_outlive_their_snapshots(table: Lake) -> None:
    put(table.store("one"), "a", 0, 1)
    put(table.store("one"), "b", 7, queue=OTHER)
    table.expire()
    assert len(table.table().snapshots()) == 1
    head = table.store("one").load()
    assert (head.sequence, head.batch, dict(head.vector)) == (2, "b", {QUEUE: 2, OTHER: 8})
    assert table.store("one").who_committed(2) == "b"
    put(table.store("one"), "c", 2)
    assert table.ids() == [0, 1, 2, 7, 1000]


def test_a_table_that_was_rolled_back_stops_its_sink_with_the_mend(table: Lake) -> None:
    for number, batch in enumerate("abc"):
        put(table.store("one"), batch, number)
    head, late = table.store("one").load(), table.store("one")
    newest = table.table().current_snapshot()
    table.roll_back(1)
    mend = r"set back to commit 2 of sink one, which has made 3: .*rocketapp sink rebase"
    for _ in range(2):
        with pytest.raises(SinkError, match=mend):
            table.store("one").load()
        with pytest.raises(SinkError, match=mend):
            table.store("one").who_committed(3)
        with pytest.raises(SinkError, match=mend):
            late.commit(commit_of(head, "d", {QUEUE: Span(3, 4)}, rows=1), rows_of(3))
        table.append(100)  # nor does it go unseen behind what others add
    assert table.ids() == [0, 1, 100, 100]
    assert newest is not None
    table.table().manage_snapshots().set_current_snapshot(newest.snapshot_id).commit()
    late.commit(commit_of(late.load(), "d", {QUEUE: Span(3, 4)}, rows=1), rows_of(3))
    assert table.ids() == [0, 1, 2, 3]


def test_a_sink_goes_on_behind_the_rows_of_a_table_that_was_rolled_back(
    table: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, queue in enumerate((QUEUE, QUEUE, OTHER)):
        put(table.store("one"), f"batch{number}", number, queue=queue)
    table.roll_back(2)
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", lambda name: table.catalog())
    arguments = ["rebase", "lake.shop.orders", "--to", f"{QUEUE}=1"]
    assert f"{QUEUE}  #1 -> #1" in CliRunner().invoke(command, arguments).output
    assert (table.store("one").load().sequence, dict(table.store("one").load().vector)) == (4, {QUEUE: 1})
    put(table.store("one"), "d", 1)
    assert table.ids() == [0, 1]


@pytest.mark.timeout(120)
def test_of_many_rollbacks_none_loses_in_silence(table: Lake) -> None:
    store = table.store("one")
    turns = [(2, True), (1, False), *product((3, 2, 1), (False, True))]
    for turn, (commits, is_followed) in enumerate(turns):
        before = store.load().sequence
        for number in range(3):
            offset = store.load().vector.get(QUEUE, 0)
            commit_rows(store, rows_of(offset), f"batch{turn}-{number}")
        table.roll_back(commits)
        if is_followed:
            table.append(1000)
        said = rf"set back to commit \d+ of sink one, which has made {before + 3}: "
        with pytest.raises(SinkError, match=said):
            store.load()
        with pytest.raises(SinkError, match=said):
            store.commit(commit_of(Head(sequence=before + 3), "late", {QUEUE: Span(0, 1)}, rows=1), rows_of(5000))
        mended = table.store("one", is_set_back=True)
        rebase(mended, "one", {QUEUE: mended.load().vector[QUEUE]}, made_at=1.0)
    ids = [number for number in table.ids() if number < 1000]
    assert ids == list(range(store.load().vector[QUEUE]))


def test_a_table_that_was_rolled_back_to_before_its_first_commit_is_noticed(table: Lake) -> None:
    table.create(rows_of(0).schema)
    table.append(100)
    put(table.store("one"), "a", 0)
    table.roll_back(1)
    with pytest.raises(SinkError, match="set back to commit 0 of sink one, which has made 1"):
        table.store("one").load()


@pytest.mark.parametrize(
    ("columns", "problem"),
    [({"id": ["zero"], "text": ["x"]}, "do not fit the table"), ({"id": [0], "more": [1]}, "do not fit the table")],
)
def test_files_that_do_not_fit_the_table_are_refused(table: Lake, columns: dict[str, list[Any]], problem: str) -> None:
    put(table.store("two"), "z", 100, sink="two")
    store = table.store("one")
    for refuses in (store.check, lambda rows: commit_rows(store, rows)):
        with pytest.raises(SinkError, match=problem) as raised:
            refuses(pa.table(columns))
        assert "\n" not in str(raised.value)
    assert table.ids() == [100]


def test_the_first_commit_may_be_without_rows(table: Lake) -> None:
    put(table.store("one"), "a")
    assert {"_rmq_topic", "_rmq_offset"} <= set(table.table().schema().column_names)
    assert (table.rows(), dict(table.store("one").load().vector)) == ([], {QUEUE: 1})


@pytest.mark.parametrize("place", ["lake/orders", "file://lake/orders"])
def test_a_place_that_depends_on_where_a_program_runs_is_refused(
    table: Lake, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.path)
    table.create(rows_of(0).schema, location=place)
    with pytest.raises(SinkError, match=f"{place} depends on where a program runs"):
        put(table.store("one"), "a", 0)


def test_show_reads_an_iceberg_table(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table.store("shop/one"), "a", 0, 1, sink="shop/one")
    put(table.store("shop/one"), "b", 7, queue=OTHER, sink="shop/one")
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", lambda name: table.catalog())

    def shown() -> list[str]:
        return CliRunner().invoke(command, ["show", "lake.shop.orders"]).output.splitlines()

    queues = ["  orders@broker-a:0  next #2", "  orders@broker-a:1  next #8"]
    assert shown() == ["shop/one: commit 2 at 1970-01-01T00:00:01+00:00, 3 rows", *queues]
    table.expire()
    assert shown() == ["shop/one: commit 2 at 1970-01-01T00:00:01+00:00, 1 rows since commit 2", *queues]


def test_show_says_in_one_line_that_a_table_is_not_there(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyiceberg.catalog.load_catalog", lambda name: table.catalog())
    done = CliRunner().invoke(command, ["show", "lake.shop.orders"])
    said = "Error: lake.shop.orders is not the table of a sink, or has no commit yet"
    assert (done.exit_code, done.output.splitlines()[-1]) == (2, said)


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


@pytest.mark.timeout(300)
async def test_a_topic_lands_in_a_bucket_and_no_secret_is_told(
    rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch, bucket: Lake, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__CRASH_DIR", "")
    monkeypatch.setenv("ROCKETAPP_CONSUMER__JOIN_TIMEOUT", "0")
    monkeypatch.setenv("ROCKETAPP_APP__DRAIN_TIMEOUT", "1")  # nothing ends the batch that cannot be written
    caplog.set_level(0, "rocketapp")
    is_wrong = [True]

    def catalog(name: str) -> SqlCatalog:
        lake = Lake(bucket.path, **{**bucket.where, **({"s3.endpoint": "http://127.0.0.1:9"} if is_wrong else {})})
        bucket.opened.append(found := lake.catalog())
        return found

    monkeypatch.setattr("pyiceberg.catalog.load_catalog", catalog)
    topic = "bucket-orders"
    for _ in range(2):
        app = RocketApp("shop", plugins=lake_plugin())
        sink(app, topic, table="lake.shop.orders", format="iceberg", schema=Order, flush_seconds=0.2)
        async with app:
            if is_wrong:
                await app.publish_many(topic, [Order(number, f"item {number}") for number in range(20)])
                await until(lambda: "cannot write its batch" in caplog.text or "failed" in caplog.text)
                is_wrong.clear()
            else:
                await until(lambda: len(bucket.rows()) == 20)
    assert s3.SECRET not in caplog.text and s3.KEY not in caplog.text
    assert s3.SECRET not in repr(bucket.store("one"))


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
        commit_rows(IcebergStore(lambda: dying, table.name, "one", partition_by=["day"]), rows)
    commit_rows(IcebergStore(table.catalog, table.name, "one", partition_by=["day"]), rows)
    assert [field.name for field in table.table().spec().fields] == ["rmq_day"]


def test_what_a_commit_is_made_of_survives_a_power_cut(table: Lake, synced: set[Path]) -> None:
    put(table.store("one"), "a", 0)
    made = table.table()
    snapshot = made.current_snapshot()
    assert snapshot is not None
    manifests = [manifest.manifest_path for manifest in snapshot.manifests(made.io)]
    files = [task.file.file_path for task in made.scan().plan_files()]
    places = [made.metadata_location, snapshot.manifest_list, *manifests, *files]
    assert {Path(place.removeprefix("file://")) for place in places} <= synced


def test_what_a_table_becomes_beside_its_commits_survives_a_power_cut_too(
    table: Lake, synced: set[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog names the newest metadata: one that is torn hides every row."""
    monkeypatch.setitem(iceberg.NEW, iceberg.KEEP, "1")
    store = table.store("one")
    for number in range(3):  # behind the last one snapshots expire
        put(store, f"batch{number}", number)
    assert len(table.table().snapshots()) == 1
    assert Path(table.table().metadata_location.removeprefix("file://")) in synced
    store.add_columns(pa.schema([pa.field("more", pa.int64())]))
    assert Path(table.table().metadata_location.removeprefix("file://")) in synced


@pytest.mark.parametrize("is_new", [True, False])
def test_a_type_that_the_format_does_not_have_is_told_by_its_column(table: Lake, is_new: bool) -> None:
    if not is_new:
        put(table.store("one"), "a", 0)
    rows, store = rows_of(1).append_column("took", pa.array([5], pa.duration("us"))), table.store("one")
    with pytest.raises(SinkError, match=r"olumn '?took'? .*duration\[us\].*: cast it in the query, or in a function"):
        store.commit(commit_of(store.load(), "b", {QUEUE: Span(1, 2)}, rows=1), rows)
    if not is_new:
        with pytest.raises(SinkError, match="took"):
            table.store("one").add_columns(rows.schema)
    assert table.ids() == ([] if is_new else [0])
