"""Delta tables that Spark writes: the suite of stores, and owners with another writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from store_suite import OTHER, QUEUE, Span, StoreSuite, commit_of, put, rows_of

from rocketapp_lake.delta import DeltaStore
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.writing import SparkWriter

pytestmark = pytest.mark.timeout(300)


class Lake:
    """A Delta table."""

    def __init__(self, path: Path) -> None:
        self.path, self._append = path, SparkWriter(Spark("local[2]", {})).append_to_delta()

    def store(self, sink: str, *, by_spark: bool = True) -> DeltaStore:
        return DeltaStore(self.path, sink, append=self._append if by_spark else None)

    def rows(self) -> Sequence[Mapping[str, Any]]:
        found: list[dict[str, Any]] = DeltaTable(self.path).to_pyarrow_table().to_pylist() if self._is_there() else []
        return found

    def _is_there(self) -> bool:
        return DeltaTable.is_deltatable(str(self.path))


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(tmp_path / "table")


class TestDeltaBySpark(StoreSuite):
    """The suite of all stores."""


def test_a_table_may_change_its_writer_at_each_commit(table: Lake) -> None:
    for number in range(6):
        put(table.store("one", by_spark=number % 2 == 0), f"batch{number}", number)
        head = table.store("one", by_spark=number % 2 == 1).load()
        assert (head.sequence, dict(head.vector)) == (number + 1, {QUEUE: number + 1})
    engines = [entry["engineInfo"] for entry in DeltaTable(table.path).history() if entry["operation"] == "WRITE"]
    assert [engine.startswith("Apache-Spark") for engine in engines] == [False, True] * 3
    assert sorted(row["id"] for row in table.rows()) == list(range(6))


@pytest.mark.parametrize("winner", [True, False])
def test_an_owner_that_looked_before_another_committed_does_not_land_behind_it(
    table: Lake, winner: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(table.store("one"), "a", 0)
    late = table.store("one")
    append = late._append

    def slow(place: str, rows: pa.Table, options: Mapping[str, str]) -> None:
        put(table.store("one", by_spark=winner), "b", 1)
        assert append is not None
        append(place, rows, options)

    late._append = slow
    with pytest.raises(FencedError):
        late.commit(commit_of(late.load(), "c", {QUEUE: Span(1, 3)}, rows=2), rows_of(1, 2))
    assert sorted(row["id"] for row in table.rows()) == [0, 1]
    assert table.store("one").who_committed(2) == "b"


def test_what_a_table_forbids_is_refused_and_nothing_is_written(table: Lake) -> None:
    put(table.store("one"), "a", 1)
    DeltaTable(table.path).alter.add_constraint({"positive": "id >= 0"})
    store = table.store("one")
    with pytest.raises(SinkError, match="refuses rows"):
        store.commit(commit_of(store.load(), "b", {OTHER: Span(0, 1)}, rows=1), rows_of(-7))
    assert sorted(row["id"] for row in table.rows()) == [1]
