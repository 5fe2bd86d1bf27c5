"""Other programs count the same rows of a table at any moment, while a sink commits and files are put together."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from store_suite import put

from rocketapp_lake.delta import DeltaStore
from rocketapp_lake.iceberg import IcebergStore
from rocketapp_lake.options import TARGET_FILE_SIZE
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.writing import by_arrow

ROWS = 10
"""Of each commit."""
TOGETHER = 3
"""Commits behind which files are put together."""
LOOKS = 8
"""Of all readers, beside the commits."""


class Delta:
    """A table of deltalake."""

    def __init__(self, path: Path) -> None:
        self._path = path / "table"
        self.sink: Any = DeltaStore(self._path, "one")

    def put_together(self) -> None:
        assert self.sink.compact(TARGET_FILE_SIZE).before == TOGETHER

    def counts(self) -> dict[str, int]:
        """By reader, of one version."""
        seen = DeltaTable(self._path)
        return {
            "pandas": len(seen.to_pandas()),
            "arrow": seen.to_pyarrow_dataset().count_rows(),
            "duckdb": by_duckdb(seen.file_uris()),
            "polars": polars.scan_delta(seen).select(polars.len()).collect().item(),
        }

    def close(self) -> None:
        """Nothing is open."""


class Iceberg:
    """A table in a catalog on SQLite."""

    def __init__(self, path: Path) -> None:
        self._catalog = SqlCatalog("lake", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}")
        self.sink: Any = IcebergStore(lambda: self._catalog, "shop.orders", "one")

    def put_together(self) -> None:
        """pyiceberg has no compaction: all rows as one file are what Spark's procedure makes."""
        table = self._table()
        table.overwrite(table.scan().to_arrow())

    def counts(self) -> dict[str, int]:
        """By reader, of one snapshot."""
        seen = self._table()
        return {
            "pandas": len(seen.scan().to_pandas()),
            "arrow": seen.scan().to_arrow().num_rows,
            "duckdb": by_duckdb([task.file.file_path for task in seen.scan().plan_files()]),
            "polars": polars.scan_iceberg(seen).select(polars.len()).collect().item(),
        }

    def close(self) -> None:
        self._catalog.engine.dispose()

    def _table(self) -> Any:
        return self._catalog.load_table("shop.orders")


class Parquet:
    """A directory of files, which readers list by themselves; pandas reads it by pyarrow."""

    def __init__(self, path: Path) -> None:
        self._path = path / "table"
        self.sink: Any = ParquetStore(self._path, "one", write=by_arrow())

    def put_together(self) -> None:
        """It is not compacted."""

    def counts(self) -> dict[str, int]:
        """By reader, each of what it has listed: not fewer rows than the one before."""
        found = {
            "pandas": len(pd.read_parquet(self._path)),
            "pyarrow": pq.read_table(self._path).num_rows,
            "arrow": ds.dataset(self._path, format="parquet").count_rows(),
            "duckdb": by_duckdb([f"{self._path}/**/*.parquet"]),
        }
        assert list(found.values()) == sorted(found.values())
        return dict.fromkeys(found, found["arrow"])

    def close(self) -> None:
        """Nothing is open."""


def by_duckdb(files: list[str]) -> int:
    ((found,),) = duckdb.read_parquet(files).aggregate("count(DISTINCT id)").fetchall()
    return int(found)


Table = Delta | Iceberg | Parquet


@pytest.fixture(params=[Delta, Iceberg, Parquet])
def table(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")
    made: Table = request.param(tmp_path)
    yield made
    made.close()


@pytest.mark.timeout(300)
def test_all_readers_count_the_same_rows_at_any_moment(table: Table) -> None:
    """No reader sees a part of a commit, or a row twice, or none while its file is exchanged."""
    committed = 0

    def commit() -> None:
        nonlocal committed
        put(table.sink, f"batch{committed}", *range(committed, committed + ROWS))
        committed += ROWS

    commit()
    stop, problems = threading.Event(), list[Exception]()

    def write() -> None:
        try:
            while not stop.is_set():
                for _ in range(TOGETHER - 1):
                    commit()
                table.put_together()
        except Exception as error:
            problems.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(LOOKS):
            least = committed
            found = table.counts()
            assert len({*found.values()}) == 1, found
            assert least <= found["arrow"] <= committed + ROWS
            assert found["arrow"] % ROWS == 0
    finally:
        stop.set()
        writing.join()
    assert not problems
    assert {*table.counts().values()} == {committed}
