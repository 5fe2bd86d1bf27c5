"""The Parquet directory passes the suite of stores, and its recovery completes what a death has left half done."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from sink_shop import all_rows, by_halves

from rocketapp_pyspark.conformance import LANE, GrowingSuite, Span, StoreSuite, commit_of, put, rows_of
from rocketapp_pyspark.errors import SinkError
from rocketapp_pyspark.parquet import ParquetStore


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


class TestParquet(StoreSuite, GrowingSuite):
    """The suite of all stores."""


class Death(BaseException):
    """The process ends here."""


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
    assert dict(head.vector) == {LANE: 2}
    assert sorted(row["id"] for row in table.rows()) == [0, 1]


def test_an_owner_that_dies_before_its_commit_point_has_not_committed(
    table: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(source: Path, target: Path) -> None:
        raise Death

    monkeypatch.setattr(os, "link", dying)
    with pytest.raises(Death):
        put(table.store("one"), "a", 0)
    monkeypatch.undo()
    assert table.store("one").load().sequence == 0
    assert table.rows() == []


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


def test_staged_files_that_were_removed_are_noticed_before_the_commit(table: Directory) -> None:
    late, other = table.store("one"), table.store("one")
    staged = late.stage("a", pa.table({"id": [0], "text": ["late"]}))
    assert other.sweep(0.0) == 1
    with pytest.raises(SinkError, match="staged too long ago"):
        late.publish(commit_of(late.load(), "a", {LANE: Span(0, 1)}, rows=1), staged)
    assert table.store("one").load().sequence == 0


def test_a_file_that_was_removed_from_the_table_later_does_not_stop_its_sink(table: Directory) -> None:
    put(table.store("one"), "a", 0)
    for file in table.path.rglob("*.parquet"):
        file.unlink()
    put(table.store("one"), "b", 1)
    assert [row["id"] for row in table.rows()] == [1]


def test_the_log_says_what_each_commit_added(table: Directory) -> None:
    put(table.store("one"), "a", 0, 1)
    put(table.store("one"), "b", 2)
    assert [
        (commit.sequence, commit.rows, dict(commit.spans)) for commit in ParquetStore.log_of(table.path, "one")
    ] == [
        (1, 2, {LANE: Span(0, 2)}),
        (2, 1, {LANE: Span(2, 3)}),
    ]


class TestParquetStagedElsewhere(StoreSuite):
    """The same with files that wait for their commit in another directory."""

    @pytest.fixture
    def table(self, tmp_path: Path) -> Directory:
        return StagedElsewhere(tmp_path)


class StagedElsewhere(Directory):
    """A table whose staging is beside it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path / "table")
        self.path.mkdir()
        self.staging = path / "staging"

    def store(self, sink: str) -> ParquetStore:
        return ParquetStore(self.path, sink, write=by_halves, staging=self.staging)


def test_files_wait_in_the_directory_that_was_given(tmp_path: Path) -> None:
    table = StagedElsewhere(tmp_path)
    table.store("one").stage("a", rows_of(0))
    assert len(list(table.staging.glob("*/a/out/*/*.parquet"))) == 1
    assert not (table.path / "_rmq_staging").exists()


@pytest.mark.parametrize("is_elsewhere", [True, False])
def test_a_commit_is_completed_from_where_it_was_staged_by_an_owner_that_stages_in_another_place(
    tmp_path: Path, is_elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = StagedElsewhere(tmp_path)
    plain = Directory(table.path)
    before, after = (table, plain) if is_elsewhere else (plain, table)

    def dying(source: Path, target: Path) -> None:
        raise Death

    with monkeypatch.context() as patch, pytest.raises(Death):
        patch.setattr(Path, "replace", dying)
        put(before.store("one"), "a", 0, 1)
    assert after.store("one").sweep(0.0) == 0
    put(after.store("one"), "b", 2)
    assert sorted(row["id"] for row in table.rows()) == [0, 1, 2]


def test_staging_on_another_file_system_is_refused_before_anything_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("one file system alone")
    with TemporaryDirectory(dir="/dev/shm") as other:
        store = ParquetStore(tmp_path / "table", "one", write=by_halves, staging=other)
        with pytest.raises(SinkError, match="give a directory on the file system of"):
            store.stage("a", rows_of(0))
    assert store.load().sequence == 0
