"""Small files become larger ones; rows and positions stay, through deaths, appends and reads on the way."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from sink_shop import by_halves

from rocketapp.plugin import Tasks
from rocketapp_lake import parquet
from rocketapp_lake.commands import command
from rocketapp_lake.compaction import Compaction
from rocketapp_lake.conformance import LANE, OTHER, put
from rocketapp_lake.counts import Counts
from rocketapp_lake.errors import FencedError
from rocketapp_lake.parquet import ParquetStore, merge, small_files
from rocketapp_lake.parquet_log import LOG, ParquetLog
from rocketapp_lake.staging import STAGING
from rocketapp_lake.store import Compacted

LARGE = 128 * 1024 * 1024


class Death(BaseException):
    """The process ends here."""


class Directory:
    """A table in a directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def store(self, sink: str = "one", **options: Any) -> ParquetStore:
        return ParquetStore(self.path, sink, write=by_halves, **options)

    def seen(self) -> list[int]:
        """The ids that a reader of the directory sees, each as often as it is there."""
        return sorted(ds.dataset(self.path, format="parquet").to_table()["id"].to_pylist())

    def listed(self) -> list[int]:
        """Those of a reader that asks the log for the files."""
        return sorted(
            number
            for file in ParquetStore.files_of(self.path, "one")
            for number in pq.read_table(file)["id"].to_pylist()
        )

    def files(self) -> list[str]:
        return sorted(str(file.relative_to(self.path)) for file in self.path.glob("[!_]*/*.parquet"))


@pytest.fixture
def table(tmp_path: Path) -> Directory:
    """Three commits of four rows: three files in each of two partitions."""
    made = Directory(tmp_path)
    for first in range(0, 12, 4):
        put(made.store(), f"batch{first}", *range(first, first + 4))
    return made


def test_each_partition_has_one_file_then_and_rows_and_positions_are_what_they_were(table: Directory) -> None:
    before = table.store().load()
    done = table.store().compact(LARGE)
    assert (done.before, done.after) == (6, 2)
    assert sorted(Path(file).parent.name for file in table.files()) == ["half=0", "half=1"]
    assert done.bytes == sum((table.path / file).stat().st_size for file in table.files())
    assert table.seen() == table.listed() == list(range(12))
    after = table.store().load()
    assert (after.sequence, after.vector, after.schema) == (before.sequence + 1, before.vector, before.schema)
    assert list((table.path / STAGING).iterdir()) == []


def test_a_table_whose_files_are_large_enough_is_left_as_it_is(table: Directory) -> None:
    assert table.store().compact(1000) == Compacted()
    assert table.store().load().sequence == 3
    table.store().compact(LARGE)
    assert table.store().compact(LARGE) == Compacted()


def test_files_behind_a_compaction_join_in_the_next_one(table: Directory) -> None:
    table.store().compact(LARGE)
    put(table.store(), "late", 12, 13)
    done = table.store().compact(LARGE)
    assert (done.before, done.after) == (4, 2)
    assert table.seen() == table.listed() == list(range(14))


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ({"a": 10, "b": 10, "c": 10}, [["a", "b", "c"]]),
        ({"a": 10, "b": 50, "c": 10}, [["a", "c"]]),
        ({"a": 40, "b": 40, "c": 40, "d": 40, "e": 40}, [["a", "b"], ["c", "d"]]),
        ({"x=1/a": 10, "x=1/b": 10, "x=2/c": 10}, [["x=1/a", "x=1/b"]]),
    ],
)
def test_files_of_one_directory_go_together_up_to_the_target(sizes: dict[str, int], groups: list[list[str]]) -> None:
    assert list(small_files(sizes.items(), 100)) == groups


def test_files_of_other_columns_are_not_mixed(table: Directory) -> None:
    wide = pa.table({"id": [12, 14], "text": ["x", "y"], "more": [1, 2]})
    for batch in ("wide", "wider"):
        store = table.store()
        commit = put(store, batch + "0")
        store.commit(_next(commit, batch), wide.slice(0, 1))
    assert table.store().compact(LARGE).after == 3
    files = [pq.read_table(table.path / file).column_names for file in table.files()]
    assert sorted(map(len, files)) == [2, 2, 3]


def _next(commit: Any, batch: str) -> Any:
    return replace(commit, sequence=commit.sequence + 1, batch=batch)


def test_rows_of_a_compacted_file_are_sorted_where_that_is_wanted(tmp_path: Path) -> None:
    table = Directory(tmp_path)
    for batch, numbers in (("a", (9, 1)), ("b", (5, 3))):
        put(table.store(), batch, *numbers)
    table.store(sort_by=["id"]).compact(LARGE)
    found = [pq.read_table(tmp_path / file)["id"].to_pylist() for file in table.files()]
    assert found == [[5, 9], [1, 3]]


def test_many_small_row_groups_become_one(tmp_path: Path) -> None:
    sources = [tmp_path / f"{number}.parquet" for number in range(5)]
    for number, source in enumerate(sources):
        pq.write_table(pa.table({"id": [number]}), source)
    merge(sources, tmp_path / "out" / "all.parquet")
    found = pq.ParquetFile(tmp_path / "out" / "all.parquet")
    assert (found.num_row_groups, found.read()["id"].to_pylist()) == (1, [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("what", "calls", "is_done"),
    [
        ("merge", 0, False),
        ("merge", 1, False),
        ("link", 0, False),
        ("replace", 0, True),
        ("replace", 1, True),
        ("unlink", 0, True),
        ("unlink", 1, True),
        ("unlink", 5, True),
        ("rmtree", 1, True),
    ],
)
@pytest.mark.parametrize("by", ["load", "append"])
def test_an_owner_that_dies_on_the_way_is_completed_or_undone_by_the_next(
    table: Directory, what: str, calls: int, is_done: bool, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Death):
        die_in(patch, what, calls)
        table.store().compact(LARGE)
    assert set(table.seen()) == set(range(12))
    assert table.listed() == list(range(12))
    if by == "append":
        put(table.store(), "late", 12)
    table.store().load()
    assert table.seen() == table.listed() == list(range(13 if by == "append" else 12))
    assert len(table.files()) == (2 if is_done else 6) + (by == "append")
    assert table.store().load().vector == {LANE: 13 if by == "append" else 12}
    table.store().sweep(0.0)
    assert list((table.path / STAGING).iterdir()) == []


def die_in(patch: pytest.MonkeyPatch, what: str, calls: int) -> None:
    """At the call of this number."""
    place: Any = {"merge": parquet, "link": os, "rmtree": shutil}.get(what, Path)
    original, left = getattr(place, what), [calls]

    def dying(*arguments: Any, **options: Any) -> Any:
        is_counted = what != "unlink" or LOG not in str(arguments[0])
        if is_counted and not left[0]:
            raise Death
        left[0] -= is_counted
        return original(*arguments, **options)

    patch.setattr(place, what, dying)


def test_readers_of_the_directory_miss_no_row_and_readers_of_the_log_see_each_once_all_along(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[set[int], list[int]]] = []

    def looking(place: Any, what: str) -> None:
        original = getattr(place, what)

        def look(*arguments: Any, **options: Any) -> Any:
            seen.append((set(table.seen()), table.listed()))
            answer = original(*arguments, **options)
            seen.append((set(table.seen()), table.listed()))
            return answer

        monkeypatch.setattr(place, what, look)

    for place, what in ((os, "link"), (Path, "replace"), (Path, "unlink")):
        looking(place, what)
    table.store().compact(LARGE)
    assert len(seen) == 2 * (1 + 2 + 8)
    assert all(found == (set(range(12)), list(range(12))) for found in seen)


def racing(monkeypatch: pytest.MonkeyPatch, other: Callable[[], object]) -> None:
    """Another owner does this once, when the larger files are written and not published."""
    create, left = ParquetLog.create, [1]

    def late(log: ParquetLog, sequence: int, content: bytes) -> None:
        if left and left.pop():
            other()
        create(log, sequence, content)

    monkeypatch.setattr(ParquetLog, "create", late)


def test_an_append_that_comes_between_stays_and_is_not_put_together(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    racing(monkeypatch, lambda: put(table.store(), "late", 12, 13, lane=OTHER))
    assert table.store().compact(LARGE).before == 6
    assert table.seen() == table.listed() == list(range(14))
    head = table.store().load()
    assert (head.sequence, head.vector) == (5, {LANE: 12, OTHER: 14})
    assert table.store().compact(LARGE).before == 4


def test_of_two_that_compact_at_once_one_changes_nothing(table: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    racing(monkeypatch, lambda: table.store().compact(LARGE))
    assert table.store().compact(LARGE) == Compacted()
    assert table.seen() == table.listed() == list(range(12))
    assert (table.store().load().sequence, list((table.path / STAGING).iterdir())) == (4, [])


def test_one_that_finds_its_files_removed_by_another_one_changes_nothing(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    alike, left = parquet.alike, [1]

    def late(root: Path, places: Sequence[str]) -> Iterator[list[str]]:
        if left and left.pop():
            table.store().compact(LARGE)
        return alike(root, places)

    monkeypatch.setattr(parquet, "alike", late)
    assert table.store().compact(LARGE) == Compacted()
    assert table.seen() == table.listed() == list(range(12))
    assert (table.store().load().sequence, list((table.path / STAGING).iterdir())) == (4, [])


def test_appends_and_compactions_of_many_threads_lose_and_double_nothing(table: Directory) -> None:
    problems: list[BaseException] = []

    def work(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            problems.append(error)

    def append() -> None:
        for number in range(100, 120):
            while True:
                try:
                    put(table.store("two"), f"two{number}", number, sink="two")
                except FencedError:
                    continue
                break

    def compact() -> None:
        for _ in range(10):
            table.store().compact(LARGE)
            table.store("two").compact(LARGE)

    threads = [threading.Thread(target=work, args=(call,)) for call in (append, compact, compact)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    table.store("two").compact(LARGE)
    assert table.seen() == [*range(12), *range(100, 120)]


def test_a_removed_file_does_not_stop_the_compaction_of_the_others(table: Directory) -> None:
    (table.path / table.files()[0]).unlink()
    left = table.seen()
    assert table.store().compact(LARGE).before == 5
    assert table.seen() == left


def test_an_owner_that_wakes_up_after_its_files_were_moved_and_compacted_goes_on(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, left = Path.replace, [1]

    def frozen(source: Path, target: Path) -> Path:
        if left and left.pop():
            table.store().compact(LARGE)
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", frozen)
    put(table.store(), "late", 12)
    assert table.seen() == table.listed() == list(range(13))


def test_lost_files_of_a_compaction_keep_the_small_ones(table: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(Death):
        die_in(patch, "replace", 0)
        table.store().compact(LARGE)
    for staged in (table.path / STAGING).rglob("*.parquet"):
        staged.unlink()
    with pytest.raises(parquet.SinkError, match="is lost: restore it"):
        table.store().load()
    assert table.seen() == list(range(12))


def test_a_sweep_leaves_the_files_of_a_commit_of_another_sink(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, pytest.raises(Death):
        die_in(patch, "replace", 0)
        put(table.store("two"), "other", 100, sink="two")
    assert table.store("one").sweep(0.0) == 0
    assert dict(table.store("two").load().vector) == {LANE: 101}
    assert table.seen() == [*range(12), 100]


class Table:
    """Counts, and compacts what it is told."""

    def __init__(self) -> None:
        self.targets: list[int] = []
        self.called = threading.Event()

    def compact(self, target_file_size: int) -> Compacted:
        self.targets.append(target_file_size)
        self.called.set()
        return Compacted(3, 1, 100)


async def test_the_schedule_begins_with_new_rows_and_waits_for_more(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "rocketapp.lake")
    tasks, table, counts = Tasks(), Table(), Counts()
    schedule = Compaction("one", [table], every=0.01, target_file_size=7, tasks=tasks, counts=counts)
    schedule.rows_came()
    schedule.rows_came()
    assert await asyncio.to_thread(table.called.wait, 30)
    schedule.close()
    schedule.rows_came()
    await tasks.close()
    assert table.targets == [7]


def test_the_command_puts_files_together_and_lists_them(table: Directory) -> None:
    run = CliRunner()
    assert run.invoke(command, ["compact", str(table.path)]).output.startswith("one: 6 files are 2 now, of ")
    assert run.invoke(command, ["compact", str(table.path)]).output == "one: nothing to put together\n"
    listed = run.invoke(command, ["files", str(table.path)]).output.splitlines()
    assert listed == [str(table.path / file) for file in table.files()]
    shown = run.invoke(command, ["show", str(table.path), "--commits", "1"]).output
    assert "commit 4 at" in shown
    assert "small files were put together" in shown


def test_the_command_takes_a_target_and_a_name(table: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    put(table.store("two"), "x", 100, sink="two")
    run = CliRunner()
    shown = run.invoke(command, ["compact", str(table.path), "--name", "two", "--target-file-size", "1"])
    assert shown.output == "two: nothing to put together\n"
    done = run.invoke(command, ["compact", str(table.path), "--sort-by", "id", "--name", "one"])
    assert (done.exit_code, len(table.files())) == (0, 3)
