"""Positions are set by a commit of its own, which live owners notice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from click.testing import CliRunner, Result
from pieces import halves
from sink_shop import by_arrow
from store_suite import OTHER, QUEUE, commit_of, put

from rocketapp import MessageQueue
from rocketapp_lake.batches import Batch, Made
from rocketapp_lake.commands import command, queue_from
from rocketapp_lake.committer import Attempt, rebase
from rocketapp_lake.errors import GapError
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.positions import Span


def store(directory: Path, sink: str = "one") -> ParquetStore:
    return ParquetStore(directory, sink, write=by_arrow)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two queues, at #3 and #8."""
    found = tmp_path / "orders"
    put(store(found), "a", 0, 1, 2)
    put(store(found), "b", 7, queue=OTHER)
    return found


def test_one_queue_is_set_and_the_others_stay(table: Path) -> None:
    before = store(table).load()
    head = rebase(store(table), "one", {QUEUE: 1}, made_at=5.0)
    assert (head.sequence, dict(head.vector)) == (3, {QUEUE: 1, OTHER: 8})
    assert store(table).load() == head
    newest = next(ParquetStore(table, "").commits())
    assert (newest.kind, newest.made_at, newest.schema) == ("rebase", 5.0, before.schema)


def test_positions_that_are_there_already_need_no_commit(table: Path) -> None:
    assert rebase(store(table), "one", {QUEUE: 3}, made_at=5.0).sequence == 2


def test_a_race_that_is_lost_is_run_again(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load, left = ParquetStore.load, [1]

    def slow(one: ParquetStore) -> object:
        head = load(one)
        if left and left.pop():
            put(store(table), "c", 8, queue=OTHER)
        return head

    monkeypatch.setattr(ParquetStore, "load", slow)
    head = rebase(store(table), "one", {QUEUE: 1}, made_at=5.0)
    assert (head.sequence, dict(head.vector)) == (4, {QUEUE: 1, OTHER: 9})


def attempt(table: Path, start: int, end: int) -> Attempt:
    def made(batch: Batch) -> Made:
        return Made(pa.table({"id": pa.array(range(*batch.spans[QUEUE]), pa.int64()), "text": ["x"] * (end - start)}))

    batch = Batch({QUEUE: halves(*range(start, end))}, {QUEUE: Span(start, end)})
    return Attempt(store(table), "one", batch, make=made, now=lambda: 1.0)


def test_a_live_owner_reads_again_from_where_the_queue_was_set_back_to(table: Path) -> None:
    before = store(table).load()
    rebase(store(table), "one", {QUEUE: 1}, made_at=5.0)
    with pytest.raises(GapError, match="the table ends before #1, and these rows begin at #3"):
        attempt(table, 3, 5).run(before)
    assert attempt(table, 1, 5).run(before).rows == 4
    found = ds.dataset(table, format="parquet").to_table()["id"].to_pylist()
    assert sorted(found) == [0, 1, 1, 2, 2, 3, 4, 7]


def test_a_live_owner_leaves_out_what_lies_below_where_the_queue_was_set_to(table: Path) -> None:
    before = store(table).load()
    rebase(store(table), "one", {QUEUE: 100}, made_at=5.0)
    assert attempt(table, 3, 5).run(before).batch == ""
    assert dict(store(table).load().vector) == {QUEUE: 100, OTHER: 8}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, ["rebase", *arguments])


def test_the_command_shows_what_it_does(table: Path) -> None:
    done = run(str(table), "--to", "orders@broker-a:0=1", "--to", "orders@broker-a:5=40")
    assert done.output.splitlines() == [
        "one:",
        "  orders@broker-a:0  #3 -> #1",
        "  orders@broker-a:5  not known -> #40",
        "  commit 3",
    ]
    assert dict(store(table).load().vector) == {QUEUE: 1, OTHER: 8, MessageQueue("orders", "broker-a", 5): 40}
    shown = CliRunner().invoke(command, ["show", str(table), "--commits", "1"]).output
    assert "positions were set" in shown


def test_a_dry_run_changes_nothing(table: Path) -> None:
    done = run(str(table), "--to", "orders@broker-a:0=1", "--dry-run")
    assert done.output.splitlines() == [
        "one:",
        "  orders@broker-a:0  #3 -> #1",
        "nothing was changed: --dry-run",
    ]
    assert store(table).load().sequence == 2


@pytest.mark.parametrize("ending", ["", "/"])
def test_the_table_of_bad_rows_is_set_too(table: Path, ending: str) -> None:
    bad = table.with_name("orders_bad")
    put(store(bad, "one/bad"), "a", 2, sink="one/bad")
    assert run(f"{table}{ending}", "--to", "orders@broker-a:0=1").exit_code == 0
    assert dict(store(bad, "one/bad").load().vector) == {QUEUE: 1}


@pytest.mark.parametrize(("to", "owed", "position"), [(3, (1,), 1), (9, (1,), 1), (1, (), 1)])
def test_bad_rows_that_are_still_to_be_put_aside_outlive_it_unless_they_are_read_again(
    table: Path, to: int, owed: tuple[int, ...], position: int
) -> None:
    bad, head = store(table.with_name("orders_bad"), "one/bad"), store(table).load()
    put(bad, "a", 0, sink="one/bad")
    store(table).commit(replace(commit_of(head, "c", {QUEUE: Span(3, 4)}), aside={QUEUE: (1,)}), None)
    assert run(str(table), "--to", f"orders@broker-a:0={to}").exit_code == 0
    assert (store(table).load().vector[QUEUE], store(table).load().aside.get(QUEUE, ())) == (to, owed)
    assert dict(bad.load().vector) == {QUEUE: position}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--to", "orders=5"], "'orders' is not a queue: write topic@broker:queue"),
        (["--to", "orders@broker-a:0=x"], "write QUEUE=OFFSET, as orders@broker-a:0=5000"),
        (["--to", "orders@broker-a:0=5", "--to", "orders@broker-a:0=7"], "orders@broker-a:0 is named twice"),
        (["--to", f"orders@broker-a:0={2**63}"], "no queue is as long"),
        ([], "Missing option '--to'"),
        (["--to", "orders@broker-a:0=5", "--name", "other"], "is not the table of a sink named other"),
    ],
)
def test_what_cannot_be_set_is_refused(table: Path, arguments: list[str], problem: str) -> None:
    done = run(str(table), *arguments)
    assert done.exit_code == 2
    assert problem in done.output
    assert store(table).load().sequence == 2


def test_of_several_sinks_one_has_to_be_named(table: Path) -> None:
    put(store(table, "two"), "x", 9, sink="two")
    done = run(str(table), "--to", "orders@broker-a:0=1")
    assert (done.exit_code, "say --name with one of one, two" in done.output) == (2, True)


def test_a_queue_is_written_as_it_is_shown() -> None:
    odd = MessageQueue("a@b:c", "broker-a", 7)
    assert queue_from(str(odd)) == odd
