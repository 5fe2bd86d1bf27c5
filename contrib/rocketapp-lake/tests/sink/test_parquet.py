"""The Parquet directory passes the suite of stores, and its recovery completes what a death has left half done."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sink_shop import all_rows, by_arrow, by_halves
from store_suite import QUEUE, Span, StoreSuite, commit_of, put, rows_of

from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.parquet import LOG, ParquetLog, ParquetStore
from rocketapp_lake.records import Head
from rocketapp_lake.staging import STAGING, Files, Write


class Directory:
    """A table in a directory, read as any reader would."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def store(self, sink: str) -> ParquetStore:
        return ParquetStore(self.path, sink, write=by_halves)

    def rows(self) -> Sequence[Mapping[str, Any]]:
        return all_rows(self.path)


@pytest.fixture
def table(tmp_path: Path) -> Directory:
    (tmp_path / "table").mkdir()
    return Directory(tmp_path / "table")


class TestParquet(StoreSuite):
    """The suite of all stores."""


class Death(BaseException):
    """The process ends here."""


@contextmanager
def death_at(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> Iterator[None]:
    """The process ends where it calls this for the first time."""

    def dying(*_: object) -> None:
        raise Death

    with monkeypatch.context() as patch, pytest.raises(Death):
        patch.setattr(owner, name, dying)
        yield


@pytest.mark.parametrize("moves", [0, 1])
def test_an_owner_that_dies_while_it_moves_files_has_committed(
    table: Directory, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, left = Path.replace, [moves]

    def dying(source: Path, target: Path) -> Path:
        if not left[0]:
            raise Death
        left[0] -= 1
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", dying)
    with pytest.raises(Death):
        put(table.store("one"), "a", 0, 1)
    assert len(table.rows()) == moves
    monkeypatch.undo()
    head = table.store("one").load()
    assert dict(head.vector) == {QUEUE: 2}
    assert sorted(row["id"] for row in table.rows()) == [0, 1]


def dies_before_its_commit(store: ParquetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with death_at(monkeypatch, os, "link"):
        put(store, "left over", 9)


def test_what_an_owner_leaves_that_dies_before_its_commit_is_swept(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(table.store("one"), "a", 0)
    dies_before_its_commit(table.store("one"), monkeypatch)
    store, beside = table.store("one"), table.path.with_name(".table.writing") / "of a writer that has folders"
    beside.mkdir(parents=True)
    assert store.load().sequence == 1
    assert store.sweep(3600.0) == 0
    assert store.sweep(0.0) == 2
    assert not beside.exists()
    put(store, "b", 1)
    assert sorted(row["id"] for row in table.rows()) == [0, 1]


def test_an_owner_completes_the_commit_before_its_own(table: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    other = table.store("one")

    def dying(source: Path, target: Path) -> None:
        raise Death

    monkeypatch.setattr(Path, "replace", dying)
    with pytest.raises(Death):
        put(table.store("one"), "a", 0)
    monkeypatch.undo()
    put(other, "b", 1)
    assert sorted(row["id"] for row in table.rows()) == [0, 1]


def test_a_file_that_was_removed_from_the_table_later_does_not_stop_its_sink(table: Directory) -> None:
    put(table.store("one"), "a", 0)
    for file in table.path.rglob("*.parquet"):
        file.unlink()
    put(table.store("one"), "b", 1)
    assert [row["id"] for row in table.rows()] == [1]


@pytest.mark.parametrize("writers", [(by_halves, by_arrow), (by_arrow, by_halves)])
def test_a_version_with_other_partitions_is_refused_as_readers_would_pass_over_its_files(
    table: Directory, writers: tuple[Write, Write]
) -> None:
    first, second = (ParquetStore(table.path, "one", write=write) for write in writers)
    put(first, "a", 0, 1)
    with pytest.raises(SinkError, match=r"is partitioned by (half|nothing), .* (nothing|half): change partition_by="):
        put(second, "b", 2)
    assert list((table.path / STAGING).iterdir()) == []
    put(second, "c")
    put(first, "d", 3)
    assert sorted(row["id"] for row in table.rows()) == [0, 1, 3]


def test_a_column_that_another_sink_of_the_directory_has_with_another_type_is_refused(table: Directory) -> None:
    put(table.store("one"), "a", 0)
    texts = pa.table({"id": ["x"], "text": ["y"]})
    with pytest.raises(SinkError, match="column id is int64, and the rows have string"):
        table.store("two").commit(commit_of(Head(), "b", {QUEUE: Span(0, 1)}, sink="two", rows=1), texts)
    assert table.store("two").load() == Head()
    assert [row["id"] for row in table.rows()] == [0]


def test_the_logs_of_other_sinks_are_read_once_for_each_column(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, asked, add_columns = table.store("one"), list[list[str]](), ParquetStore.add_columns

    def counted(store: ParquetStore, columns: Any) -> None:
        asked.append(sorted(column.name for column in columns))
        add_columns(store, columns)

    monkeypatch.setattr(ParquetStore, "add_columns", counted)
    for number in range(4):
        rows = pa.table({"id": [number], f"note {number % 2}": ["x"]})
        store.commit(commit_of(store.load(), str(number), {QUEUE: Span(number, number + 1)}, rows=1), rows)
    assert asked == [["id", "note 0"], ["note 1"]]


def test_the_log_says_what_each_commit_added(table: Directory) -> None:
    put(table.store("one"), "a", 0, 1)
    put(table.store("one"), "b", 2)
    commits = table.store("one").commits()
    assert [(commit.sequence, commit.rows, dict(commit.spans)) for commit in commits] == [
        (2, 1, {QUEUE: Span(2, 3)}),
        (1, 2, {QUEUE: Span(0, 2)}),
    ]


def half_written(rows: pa.Table, files: Files) -> None:
    """The disk is full when one of two files is there."""
    by_halves(rows.slice(0, 1), files)
    raise OSError(28, "No space left on device")


def test_a_batch_that_cannot_be_written_leaves_no_files_behind(tmp_path: Path) -> None:
    store = ParquetStore(tmp_path / "table", "one", write=half_written)
    with pytest.raises(OSError, match="No space left"):
        put(store, "a", 0, 1)
    assert [file for file in (tmp_path / "table").rglob("*") if file.is_file()] == []


@pytest.mark.parametrize("written", [[0], [0, 1, 1]])
def test_rows_that_were_lost_or_doubled_on_their_way_into_files_are_not_committed(
    tmp_path: Path, written: list[int]
) -> None:
    store = ParquetStore(tmp_path / "table", "one", write=lambda rows, files: by_halves(rows.take(written), files))
    with pytest.raises(OSError, match=f"{len(written)} rows of 2 are in the files of batch a"):
        put(store, "a", 0, 1)


def test_the_directories_of_a_new_table_survive_a_power_cut(tmp_path: Path, synced: set[Path]) -> None:
    put(ParquetStore(tmp_path / "lake" / "orders", "one", write=by_halves), "a", 0, 1)
    lake = tmp_path / "lake"
    places = [tmp_path, lake, lake / "orders", lake / "orders" / LOG, lake / "orders" / LOG / "one"]
    assert set(places) <= synced
    assert {file.parent for file in (lake / "orders").rglob("*.parquet")} <= synced


def test_a_commit_whose_staged_files_are_gone_is_not_taken_for_complete(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with death_at(monkeypatch, Path, "replace"):
        put(table.store("one"), "a", 0, 1)
    shutil.rmtree(table.path / STAGING)
    with pytest.raises(SinkError, match=r"of commit 1 is lost: restore it, or create (.*\.done) to go on") as caught:
        table.store("one").load()
    Path(str(caught.value).partition("or create ")[2].partition(" to go on")[0]).touch()
    put(table.store("one"), "b", 2)
    assert [row["id"] for row in table.rows()] == [2]


def test_a_sweep_leaves_the_files_of_a_commit_of_another_sink(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(table.store("one"), "a", 0)
    with death_at(monkeypatch, Path, "replace"):
        put(table.store("two"), "other", 100, sink="two")
    assert table.store("one").sweep(0.0) == 0
    assert dict(table.store("two").load().vector) == {QUEUE: 101}
    assert sorted(row["id"] for row in table.rows()) == [0, 100]


def test_no_folder_of_a_table_vanishes_as_others_list_it(table: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow, and pandas by it, look into all folders of a directory, hidden ones too, and fail for one that is gone."""
    seen, replace, create, late = set[Path](), Path.replace, ParquetLog.create, table.store("one")

    def look(*_: object) -> None:
        seen.update(place for place in table.path.rglob("*") if place.is_dir())

    def moved(source: Path, target: Path) -> Path:
        look()
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", moved)
    monkeypatch.setattr(ParquetLog, "create", lambda *given: look() or create(*given))
    head = late.load()
    put(table.store("one"), "a", 0, 1)
    with pytest.raises(FencedError):
        late.commit(commit_of(head, "b", {QUEUE: Span(0, 1)}, rows=1), rows_of(0))
    dies_before_its_commit(table.store("one"), monkeypatch)
    look()
    assert table.store("one").sweep(0.0) == 1
    assert {place.name for place in seen} == {STAGING, LOG, "one", "half=0", "half=1"}
    assert [place for place in seen if not place.is_dir()] == []
    # The folder above may be somebody else's.
    assert list(table.path.parent.iterdir()) == [table.path]


def test_a_damaged_commit_is_named(table: Directory) -> None:
    put(table.store("one"), "a", 0)
    (entry,) = (table.path / LOG / "one").glob("*.json")
    for content in (b"", b"{}", b"[]", b'{"format": 1}', entry.read_bytes().replace(b'"files"', b'"file"')):
        entry.write_bytes(content)
        with pytest.raises(SinkError, match=r"0001\.json is damaged: restore it"):
            table.store("one").load()


def test_other_files_in_the_log_are_passed_over(table: Directory) -> None:
    put(table.store("one"), "a", 0)
    (table.path / LOG / "one" / "notes.json").write_text("{}")
    assert table.store("one").load().sequence == 1


def test_a_delta_table_is_not_taken_for_a_directory(table: Directory) -> None:
    (table.path / "_delta_log").mkdir(parents=True)
    with pytest.raises(SinkError, match="is a Delta table: give format='delta', or another table="):
        table.store("one").load()


def test_a_long_log_is_listed_once(table: Directory, monkeypatch: pytest.MonkeyPatch) -> None:
    store, listed, glob = table.store("one"), list[Path](), Path.glob

    def counted(path: Path, pattern: str) -> Any:
        listed.append(path)
        return glob(path, pattern)

    monkeypatch.setattr(Path, "glob", counted)
    for number in range(3):
        put(table.store("one"), f"batch{number}", number)
        listed.clear()
        assert store.load().sequence == number + 1
        assert (table.path / LOG / "one" in listed) == (number == 0)


def test_an_owner_goes_on_in_a_directory_that_was_restored_to_an_older_state(table: Directory, tmp_path: Path) -> None:
    store = table.store("one")
    put(store, "a", 0)
    shutil.copytree(table.path, tmp_path / "backup")
    put(store, "b", 1)
    put(store, "c", 2)
    shutil.rmtree(table.path)
    (tmp_path / "backup").rename(table.path)
    put(store, "d", 1)
    put(store, "e", 2)
    assert sorted(row["id"] for row in table.rows()) == [0, 1, 2]
    assert dict(store.load().vector) == {QUEUE: 3}


def test_a_commit_of_another_owner_lasts_before_its_files_are_moved(
    table: Directory, monkeypatch: pytest.MonkeyPatch, synced: set[Path]
) -> None:
    with death_at(monkeypatch, Path, "replace"):
        put(table.store("one"), "a", 0)
    replace, before = Path.replace, list[bool]()

    def looked(source: Path, target: Path) -> Path:
        before.append(table.path / LOG / "one" in synced)
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", looked)
    synced.clear()
    table.store("one").load()
    assert before == [True]


def test_a_file_system_without_hard_links_is_refused_in_words(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refusing)
    with pytest.raises(SinkError, match="the table has to be on a file system with hard links"):
        put(table.store("one"), "a", 0)
    assert list((table.path / LOG / "one").iterdir()) == []
