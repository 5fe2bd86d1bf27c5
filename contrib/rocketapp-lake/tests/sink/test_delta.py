"""A Delta table passes the suite of stores, beside other writers, and when its log is cleaned or set back."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import PrimitiveType
from sink_shop import Order, lake_plugin, until
from store_suite import OTHER, QUEUE, Span, StoreSuite, commit_of, put, rows_of

from rocketapp import RocketApp
from rocketapp_lake import sink
from rocketapp_lake.columns import TIMESTAMP
from rocketapp_lake.commands import command
from rocketapp_lake.delta import DeltaStore, transaction_of
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.records import Head

Foreign = Callable[["Lake"], object]


class Lake:
    """A Delta table, read by Delta's library."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def store(self, sink: str) -> DeltaStore:
        return DeltaStore(self.path, sink)

    def rows(self) -> Sequence[Mapping[str, Any]]:
        try:
            found: list[dict[str, Any]] = self.delta().to_pyarrow_table().to_pylist()
        except TableNotFoundError:
            return []
        return found

    def delta(self) -> DeltaTable:
        return DeltaTable(self.path)

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.rows())

    def append(self, *numbers: int) -> None:
        """By another writer."""
        write_deltalake(self.path, rows_of(*numbers), mode="append")

    def forget_log(self) -> None:
        """What happens to a log that is older than its retention."""
        table = self.delta()
        table.alter.set_table_properties({"delta.logRetentionDuration": "interval 0 seconds"})
        self.append(1000)
        table = self.delta()
        table.create_checkpoint()
        for file in (self.path / "_delta_log").glob("*.json"):
            if int(file.stem) < table.version():
                file.unlink()


@pytest.fixture
def table(tmp_path: Path) -> Lake:
    return Lake(tmp_path / "table")


def test_the_directory_of_a_parquet_sink_is_not_made_a_delta_table(table: Lake) -> None:
    (table.path / "_rmq_log" / "one").mkdir(parents=True)
    with pytest.raises(SinkError, match="is a Parquet directory of a sink: give format='parquet'"):
        table.store("one").load()


class TestDelta(StoreSuite):
    """The suites of all stores."""


def compact(lake: Lake) -> None:
    lake.delta().optimize.compact()


def checkpoint(lake: Lake) -> None:
    lake.delta().create_checkpoint()


def vacuum(lake: Lake) -> None:
    lake.delta().vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


OTHERS: dict[str, Foreign] = {
    "append": lambda lake: lake.append(100),
    "compaction": compact,
    "checkpoint": checkpoint,
    "vacuum": vacuum,
    "property": lambda lake: lake.delta().alter.set_table_properties({"delta.appendOnly": "false"}),
}


class Between:
    """Does something once, after a publication has looked at the table and before it commits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
        self._call: Callable[[], object] | None = call
        self.attempts = 0
        commit = DeltaStore._write

        def late(*arguments: Any) -> None:
            self.attempts += 1
            once, self._call = self._call, None
            if once is not None:
                once()
            commit(*arguments)

        monkeypatch.setattr(DeltaStore, "_write", late)


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
    assert between.attempts == (2 if other == "property" else 1)  # the library goes behind the others by itself
    assert dict(table.store("one").load().vector) == {QUEUE: 4}


def test_of_two_publishers_of_one_number_the_later_one_is_fenced(table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table.store("one"), "a", 0)
    first, second = table.store("one"), table.store("one")
    head = second.load()
    Between(monkeypatch, lambda: put(first, "c", 1))
    with pytest.raises(FencedError, match="sink one is at commit 2"):
        second.commit(commit_of(head, "b", {QUEUE: Span(1, 2)}, rows=1), rows_of(1))
    assert table.ids() == [0, 1]
    assert table.store("one").who_committed(2) == "c"
    second.commit(commit_of(second.load(), "b", {OTHER: Span(1, 2)}, rows=1), rows_of(1))
    assert table.ids() == [0, 1, 1]


@pytest.mark.parametrize("other", OTHERS)
def test_positions_outlive_what_others_do(table: Lake, other: str) -> None:
    put(table.store("one"), "a", 0, 1)
    put(table.store("one"), "b", 7, queue=OTHER)
    OTHERS[other](table)
    head = table.store("one").load()
    assert (head.sequence, dict(head.vector)) == (2, {QUEUE: 2, OTHER: 8})
    assert table.store("one").who_committed(1) == "a"


def test_a_commit_that_is_said_to_have_failed_and_was_made_is_published(
    table: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = DeltaStore._write

    def made(*arguments: Any) -> None:
        commit(*arguments)
        raise CommitFailedError("the answer was lost")

    monkeypatch.setattr(DeltaStore, "_write", made)
    put(table.store("one"), "a", 0, 1)
    assert table.ids() == [0, 1]
    assert table.store("one").who_committed(1) == "a"


def test_an_owner_that_is_alone_reads_the_log_once_for_many_commits(
    table: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    looked: list[int] = []

    class Counted(DeltaTable):
        def __init__(self, table_uri: str, **options: Any) -> None:
            opened.append(table_uri)
            super().__init__(table_uri, **options)

        def history(self, limit: int | None = None) -> list[dict[str, Any]]:
            looked.append(self.version())
            return super().history(limit)

    monkeypatch.setattr("rocketapp_lake.delta.DeltaTable", Counted)
    store, head = table.store("one"), table.store("one").load()
    for number in range(1, 21):
        commit = commit_of(replace(head, sequence=number - 1), f"batch{number}", {QUEUE: Span(number, number + 1)})
        store.commit(commit, rows_of(number))
        assert store.who_committed(number) == f"batch{number}"
    assert len(opened) < 6
    assert len(looked) < 3
    assert table.ids() == list(range(1, 21))


@pytest.mark.parametrize("versions", [1, 4, 9])
def test_another_table_in_the_place_of_the_one_that_an_owner_knows_is_not_taken_for_it(
    table: Lake, versions: int
) -> None:
    store = table.store("one")
    for number in range(3):
        put(store, f"batch{number}", number)
    head = store.load()
    shutil.rmtree(table.path)
    for _ in range(versions):
        table.append(100)
    late = commit_of(head, "late", {QUEUE: Span(3, 4)}, rows=1)
    with pytest.raises((FencedError, DeltaError)):  # the library may miss the log that it knows
        store.commit(late, rows_of(3))
    with pytest.raises(FencedError, match="sink one is at commit 0"):
        store.commit(late, rows_of(3))
    assert table.ids() == [100] * versions


def test_positions_outlive_the_log(table: Lake) -> None:
    put(table.store("shop/one"), "a", 0, 1, sink="shop/one")
    put(table.store("shop/one"), "b", 7, queue=OTHER, sink="shop/one")
    table.forget_log()
    head = table.store("shop/one").load()
    assert (head.sequence, dict(head.vector)) == (2, {QUEUE: 2, OTHER: 8})
    put(table.store("shop/one"), "c", 2, sink="shop/one")
    assert table.ids() == [0, 1, 2, 7, 1000]
    assert dict(table.store("shop/one").load().vector) == {QUEUE: 3, OTHER: 8}


def test_an_owner_that_looked_before_the_log_was_cleaned_finds_what_its_successor_has_committed(table: Lake) -> None:
    earlier = table.store("one")
    put(earlier, "a", 0)
    put(table.store("one"), "b", 1)
    table.forget_log()
    assert dict(earlier.load().vector) == {QUEUE: 2}
    put(earlier, "c", 2)
    assert table.ids() == [0, 1, 2, 1000]


def test_a_table_that_was_set_back_stops_its_sink_with_the_mend(table: Lake) -> None:
    for number, batch in enumerate("abc"):
        put(table.store("one"), batch, number)
    head, late = table.store("one").load(), table.store("one")
    newest = table.delta().version()
    table.delta().restore(newest - 1)
    mend = r"set back to commit 2 of sink one, which has made 3: .*rocketapp sink rebase"
    with pytest.raises(SinkError, match=mend):
        table.store("one").load()
    with pytest.raises(SinkError, match=mend):
        table.store("one").who_committed(3)
    with pytest.raises(SinkError, match=mend):
        late.commit(commit_of(head, "d", {QUEUE: Span(3, 4)}, rows=1), rows_of(3))
    assert table.ids() == [0, 1]
    table.delta().restore(newest)
    late.commit(commit_of(late.load(), "d", {QUEUE: Span(3, 4)}, rows=1), rows_of(3))
    assert table.ids() == [0, 1, 2, 3]


def test_a_sink_goes_on_behind_the_rows_of_a_table_that_was_set_back(table: Lake) -> None:
    for number, queue in enumerate((QUEUE, QUEUE, OTHER)):
        put(table.store("one"), f"batch{number}", number, queue=queue)
    table.delta().restore(table.delta().version() - 2)
    arguments = ["rebase", str(table.path), "--to", f"{QUEUE}=1"]
    assert f"{QUEUE}  #1 -> #1" in CliRunner().invoke(command, arguments).output
    assert (table.store("one").load().sequence, dict(table.store("one").load().vector)) == (4, {QUEUE: 1})
    put(table.store("one"), "d", 1)
    assert table.ids() == [0, 1]
    table.forget_log()
    assert dict(table.store("one").load().vector) == {QUEUE: 2}


def test_a_table_that_is_set_back_between_look_and_commit_is_noticed(
    table: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(table.store("one"), "a", 0)
    put(table.store("one"), "b", 1)
    Between(monkeypatch, lambda: table.delta().restore(table.delta().version() - 1))
    with pytest.raises(SinkError, match="set back to commit 1"):
        put(table.store("one"), "c", 2)
    assert table.ids() == [0]


def test_a_table_that_was_set_back_to_before_its_first_commit_is_noticed(table: Lake) -> None:
    table.append(100)
    put(table.store("one"), "a", 0)
    table.delta().restore(0)
    with pytest.raises(SinkError, match="set back to commit 0 of sink one, which has made 1"):
        table.store("one").load()


def test_what_others_write_beside_a_sink_is_not_its_own(table: Lake) -> None:
    table.append(100)
    assert table.store("one").load().sequence == 0
    put(table.store("one"), "a", 0)
    table.append(101)
    assert table.ids() == [0, 100, 101]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"id": ["zero"], "text": ["x"]}, "column id is .*long.*, and the rows have .*string.*: cast them"),
        ({"id": [0], "text": ["x"], "more": [1]}, "has no column more: add it to the table"),
    ],
)
def test_files_that_do_not_fit_the_table_are_refused(table: Lake, columns: dict[str, list[Any]], problem: str) -> None:
    table.append(100)
    store = table.store("one")
    with pytest.raises(SinkError, match=problem):
        store.check(pa.table(columns))
    with pytest.raises(SinkError, match=problem):
        store.commit(commit_of(store.load(), "a", {QUEUE: Span(0, 1)}, rows=1), pa.table(columns))
    assert table.ids() == [100]


def test_a_table_that_forgets_transactions_is_refused(table: Lake) -> None:
    put(table.store("one"), "a", 0)
    table.delta().alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    with pytest.raises(SinkError, match=r"delta.setTransactionRetentionDuration .*: unset it"):
        table.store("one").load()


def test_readers_pass_over_files_by_their_bounds(table: Lake) -> None:
    put(table.store("one"), "a", 0, 1)
    put(table.store("one"), "b", 50, 51)
    bounds = sorted(
        (row["min.id"], row["max.id"], row["num_records"])
        for row in pa.table(table.delta().get_add_actions(flatten=True)).to_pylist()
    )
    assert bounds == [(0, 1, 2), (50, 51, 2)]


def test_each_queue_is_a_transaction_that_any_reader_of_delta_can_ask_for(table: Lake) -> None:
    put(table.store("shop/one"), "a", 0, 1, sink="shop/one")
    delta = table.delta()
    assert delta.transaction_version("rocketapp/shop%2Fone") == 1
    assert delta.transaction_version(transaction_of("shop/one", QUEUE)) == 2


def test_the_first_commit_may_be_without_rows(table: Lake) -> None:
    put(table.store("one"), "a")
    assert {field.name for field in table.delta().schema().fields} >= {"_rmq_topic", "_rmq_offset"}
    assert (table.rows(), dict(table.store("one").load().vector)) == ([], {QUEUE: 1})


def test_a_day_is_a_partition(tmp_path: Path) -> None:
    times = pa.array([datetime(2026, 11, day, tzinfo=UTC) for day in (21, 22)], TIMESTAMP)
    rows = rows_of(0, 1).append_column("_rmq_store_ts", times)
    store = DeltaStore(tmp_path, "one", partition_by=["day"])
    store.commit(commit_of(store.load(), "a", {QUEUE: Span(0, 2)}, rows=2), rows)
    table = DeltaTable(tmp_path)
    assert table.metadata().partition_columns == ["rmq_day"]
    found = table.to_pyarrow_table(filters=[("rmq_day", "=", "2026-11-22")]).to_pylist()
    assert [(row["id"], row["rmq_day"]) for row in found] == [(1, "2026-11-22")]
    with pytest.raises(SinkError, match=r"is partitioned by \['rmq_day'\], and this sink writes \[\]"):
        put(DeltaStore(tmp_path, "one"), "b", 2)


def test_a_table_has_partitions_by_its_own_columns_also_if_its_first_commit_had_no_rows(tmp_path: Path) -> None:
    declared = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string())])
    store = DeltaStore(tmp_path, "one", partition_by=["id", "day"], declared=declared)
    put(store, "a")
    stored = pa.array([datetime(2026, 11, 22, 23, 59, tzinfo=UTC)] * 2, TIMESTAMP)
    rows = rows_of(7, 8).append_column("_rmq_store_ts", stored)
    store.commit(commit_of(store.load(), "b", {QUEUE: Span(1, 3)}, rows=2), rows)
    table = DeltaTable(tmp_path)
    assert table.metadata().partition_columns == ["id", "rmq_day"]
    assert table.to_pyarrow_table(filters=[("id", "=", 7)])["text"].to_pylist() == ["row 7"]
    with pytest.raises(SinkError, match="partition_by='region' needs the column region: the rows do not have it"):
        put(DeltaStore(tmp_path / "other", "one", partition_by=["region"]), "a", 0)


def test_small_files_are_put_together_and_positions_stay(table: Lake) -> None:
    for number in range(4):
        put(table.store("one"), f"batch{number}", number)
    done = CliRunner().invoke(command, ["compact", str(table.path)])
    assert "one: 4 files are 1 now" in done.output
    assert len(table.delta().file_uris()) == 1
    assert table.ids() == [0, 1, 2, 3]
    assert dict(table.store("one").load().vector) == {QUEUE: 4}
    assert "one: nothing to put together" in CliRunner().invoke(command, ["compact", str(table.path)]).output


def test_show_reads_a_delta_table(table: Lake) -> None:
    put(table.store("shop/one"), "a", 0, 1, sink="shop/one")
    put(table.store("shop/one"), "b", 7, queue=OTHER, sink="shop/one")
    table.append(100)

    def shown(*more: str) -> list[str]:
        return CliRunner().invoke(command, ["show", str(table.path), *more]).output.splitlines()

    queues = ["  orders@broker-a:0  next #2", "  orders@broker-a:1  next #8", "staged and not published: 0 batches"]
    assert shown() == ["shop/one: commit 2 at 1970-01-01T00:00:01+00:00, 3 rows", *queues]
    table.forget_log()
    assert "is not the table of a sink" in shown()[-1]
    assert shown("--name", "shop/one") == ["shop/one: commit 2, older than the log of the table", *queues]


def test_columns_of_the_table_that_rows_lack_are_empty_unless_they_may_not_be(table: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("text", pa.string()), pa.field("note", pa.string())])
    DeltaTable.create(table.path, Schema.from_arrow(schema))
    put(table.store("one"), "a", 0)
    assert table.rows() == [{"id": 0, "text": "row 0", "note": None}]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("partition_by", [None, "day"])
async def test_a_topic_lands_in_a_delta_table(
    rocketapp_broker: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, partition_by: Any
) -> None:
    monkeypatch.setenv("ROCKETAPP_CLIENT__NAME_SERVER", rocketapp_broker)
    monkeypatch.setenv("ROCKETAPP_CONSUMER__CRASH_DIR", "")
    monkeypatch.setenv("ROCKETAPP_CONSUMER__JOIN_TIMEOUT", "0")
    topic = f"delta-{partition_by}"
    app = RocketApp("shop", plugins=lake_plugin())
    options: dict[str, Any] = {"format": "delta", "schema": Order, "flush_seconds": 0.2}
    sink(app, topic, table=tmp_path, partition_by=partition_by, **options)
    async with app:
        await app.publish_many(topic, [Order(number, f"item {number}") for number in range(20)])
        await until(lambda: len(Lake(tmp_path).rows()) == 20)
    found = Lake(tmp_path).rows()
    assert sorted((row["id"], row["item"]) for row in found) == [(number, f"item {number}") for number in range(20)]
    assert all(row["_rmq_store_ts"].utcoffset() == timedelta(0) for row in found)
    days = {f"{row['_rmq_store_ts']:%Y-%m-%d}" for row in found}
    assert {row.get("rmq_day") for row in found} == (days if partition_by else {None})


def test_a_commit_survives_a_power_cut(tmp_path: Path, synced: set[Path]) -> None:
    lake = Lake(tmp_path / "lake" / "orders")
    put(lake.store("one"), "a", 0)
    log = lake.path / "_delta_log"
    assert {tmp_path, lake.path.parent, lake.path, log, *log.glob("*.json"), *lake.path.glob("*.parquet")} <= synced


def test_what_stands_in_the_place_of_commits_survives_a_power_cut_too(tmp_path: Path, synced: set[Path]) -> None:
    """A compaction, new columns, a checkpoint, what others have committed: the log is read through all of them."""
    lake, log = Lake(tmp_path / "orders"), tmp_path / "orders" / "_delta_log"
    DeltaTable.create(lake.path, Schema.from_arrow(rows_of(0).schema), configuration={"delta.checkpointInterval": "4"})
    store = lake.store("one")
    for number in range(2):
        put(store, f"batch{number}", number)
    store.add_columns(pa.schema([pa.field("more", pa.int64())]))
    assert store.compact(1 << 20).before == 2
    assert {log / f"{number:020d}.json" for number in (3, 4)} | {*map(Path, lake.delta().file_uris())} <= synced
    lake.delta().alter.set_table_properties({"delta.appendOnly": "false"})
    put(store, "c", 2)
    made = {*log.glob("*.json"), *log.glob("*.checkpoint.parquet"), log / "_last_checkpoint"}
    assert made - {log / f"{0:020d}.json"} <= synced


# Tables that others own.


def test_what_a_table_forbids_is_refused_and_nothing_is_written(table: Lake) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
    DeltaTable.create(table.path, Schema.from_arrow(schema)).alter.add_constraint({"positive": "id >= 0"})
    put(table.store("one"), "a", 1)
    for id in (-7, None):
        store, rows = table.store("one"), pa.table({"id": pa.array([id], pa.int64()), "text": ["x"]})
        with pytest.raises(SinkError, match="refuses rows.*-7" if id else "column id may not be null"):
            store.commit(commit_of(store.load(), "b", {QUEUE: Span(2, 3)}, rows=1), rows)
    with pytest.raises(SinkError, match="column id may not be null: 1 of 1 rows lack it"):
        table.store("one").check(pa.table({"text": ["x"]}))
    assert table.ids() == [1]
    assert dict(table.store("one").load().vector) == {QUEUE: 2}
    put(table.store("one"), "c", 2)
    assert table.ids() == [1, 2]


@pytest.mark.parametrize(("nullable", "partition"), [(True, None), (False, None), (True, "twice")])
def test_a_column_that_the_table_computes_is_left_to_it(table: Lake, nullable: bool, partition: str | None) -> None:
    long, text = PrimitiveType("long"), PrimitiveType("string")
    computed = Field("twice", long, nullable=nullable, metadata={"delta.generationExpression": "id * 2"})
    schema = Schema([Field("id", long), Field("text", text), computed, Field("note", text)])
    DeltaTable.create(table.path, schema, partition_by=partition)
    put(table.store("one"), "a", 3)
    put(table.store("one"), "b")
    assert [(row["id"], row["twice"], row["note"]) for row in table.rows()] == [(3, 6, None)]


@pytest.mark.parametrize("has_rows", [True, False])
def test_a_stale_owner_is_fenced_in_a_table_that_it_did_not_create(table: Lake, has_rows: bool) -> None:
    table.append(100)
    stale = table.store("one")
    head = stale.load()
    put(table.store("one"), "a", 0)
    with pytest.raises(FencedError):
        stale.commit(commit_of(head, "b", {QUEUE: Span(0, 1)}), rows_of(0) if has_rows else None)
    assert table.ids() == [0, 100]


@pytest.mark.parametrize("has_rows", [True, False])
def test_an_owner_that_looked_before_another_committed_does_not_land_behind_it(
    table: Lake, has_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.append(100)
    put(table.store("one"), "z", 0)
    late, head = table.store("one"), table.store("one").load()
    Between(monkeypatch, lambda: put(table.store("one"), "a", 1))
    with pytest.raises(FencedError):
        late.commit(commit_of(head, "b", {QUEUE: Span(1, 2)}), rows_of(1) if has_rows else None)
    assert table.ids() == [0, 1, 100]


def test_another_writer_every_tenth_of_a_second_does_not_hold_up_a_sink(table: Lake) -> None:
    began = time.perf_counter()
    table.append(1000)
    # A machine that needs longer than that for a commit would do nothing but theirs.
    pause, stop = max(0.1, time.perf_counter() - began), threading.Event()

    def append() -> None:
        while not stop.wait(pause):
            table.append(1000)

    other = threading.Thread(target=append)
    other.start()
    try:
        for number in range(20):
            put(table.store("one"), f"batch{number}", number)
    finally:
        stop.set()
        other.join()
    assert [number for number in table.ids() if number < 1000] == list(range(20))


@pytest.mark.parametrize("seed", range(20))
def test_no_row_is_lost_in_silence_when_a_table_is_restored(table: Lake, seed: int) -> None:
    chance = Random(seed)
    count = chance.randrange(3, 8)
    for number in range(count):
        put(table.store("one"), f"batch{number}", number)
        if chance.random() < 0.3:
            table.append(1000)
    versions = table.delta().version()
    table.delta().restore(chance.randrange(versions))
    if chance.random() < 0.5:
        table.append(1000)
    has = [number for number in table.ids() if number < 1000]
    if has == list(range(count)):  # what was taken back was of others
        put(table.store("one"), "more", count)
        return
    with pytest.raises(SinkError, match=f"set back to commit {len(has)} of sink one, which has made {count}"):
        put(table.store("one"), "more", count)
    arguments = ["rebase", str(table.path), "--to", f"{QUEUE}={len(has)}"]
    assert "commit" in CliRunner().invoke(command, arguments).output
    for number in range(len(has), count):
        put(table.store("one"), f"again{number}", number)
    assert [number for number in table.ids() if number < 1000] == list(range(count))


def test_a_restore_behind_which_a_commit_of_the_sink_came_is_noticed(table: Lake) -> None:
    """As by a writer that changes no metadata when it restores."""
    for number in range(3):
        put(table.store("one"), f"batch{number}", number)
    watching = table.store("one")
    watching.load()
    newest = table.delta().version()
    table.delta().restore(newest - 1)
    late = DeltaStore(table.path, "one", is_set_back=True)
    commit = commit_of(Head(sequence=3, vector={QUEUE: 3}), "late", {QUEUE: Span(3, 4)}, rows=1)
    late.commit(commit, rows_of(3))
    for store in (watching, table.store("one")):
        with pytest.raises(SinkError, match="set back to commit 2 of sink one, which has made 4"):
            store.load()


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


def test_a_commit_between_a_look_at_the_table_and_one_at_its_history_is_no_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(DeltaStore(tmp_path, "one"), "a", 0)

    def opened(*given: Any, **more: Any) -> DeltaTable:
        table = DeltaTable(*given, **more)
        monkeypatch.undo()
        put(DeltaStore(tmp_path, "one"), "b", 1)
        return table

    monkeypatch.setattr("rocketapp_lake.delta.DeltaTable", opened)
    store = DeltaStore(tmp_path, "one")
    assert [store.load().batch for _ in range(2)] == ["a", "b"]


@pytest.mark.parametrize("is_restored", [False, True])
def test_commits_of_others_between_a_look_at_the_table_and_one_at_its_history_do_not_shift_it(
    is_restored: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Delta's library counts versions down from that of the table, and reads those behind it as well."""
    put(DeltaStore(tmp_path, "one"), "a", 0)
    if is_restored:
        put(DeltaStore(tmp_path, "one"), "b", 1)
        DeltaTable(tmp_path).restore(1)

    def opened(*given: Any, **more: Any) -> DeltaTable:
        table = DeltaTable(*given, **more)
        monkeypatch.undo()
        for _ in range(1 if is_restored else 3):
            write_deltalake(tmp_path, rows_of(7), mode="append")
        return table

    monkeypatch.setattr("rocketapp_lake.delta.DeltaTable", opened)
    store = DeltaStore(tmp_path, "one")
    if is_restored:
        with pytest.raises(SinkError, match="was set back to commit 1"):
            store.load()
    else:
        assert store.load().batch == "a"
