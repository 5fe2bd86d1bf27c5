"""Tables of a sink, written by Spark, as other programs read them. Files that do not count any more lie beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from store_suite import OTHER, put

from rocketapp_lake.delta import DeltaStore
from rocketapp_lake.iceberg import IcebergStore
from rocketapp_lake.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
"""Spark on a busy machine takes its time."""
WRITTEN = [(0, "row 0"), (1, "row 1"), (2, "row 2"), (5, "row 5")]
Rows = list[tuple[int, str]]
LOOKS = 3
"""Of all readers, beside the commits."""


class Delta:
    """A table of deltalake."""

    def __init__(self, path: Path) -> None:
        self._path = path / "table"

    def store(self) -> Store:
        return DeltaStore(self._path, "one")

    def rewrite(self) -> None:
        DeltaTable(self._path).optimize.compact()

    def files(self) -> list[str]:
        return DeltaTable(self._path).file_uris()

    def read(self) -> Rows:
        """By the format's own library."""
        return rows_of(DeltaTable(self._path).to_pyarrow_table().to_pylist())

    def read_by_duckdb(self) -> Rows:
        whole = duckdb.from_arrow(DeltaTable(self._path).to_pyarrow_dataset())
        return sorted(whole.select("id, text").fetchall())

    def close(self) -> None:
        """Nothing is open."""


class Iceberg:
    """A table in a catalog on SQLite."""

    def __init__(self, path: Path) -> None:
        self._catalog = SqlCatalog("lake", uri=f"sqlite:///{path}/catalog.db", warehouse=f"file://{path}")
        self._name = "shop.orders"

    def store(self) -> Store:
        return IcebergStore(lambda: self._catalog, self._name, "one")

    def rewrite(self) -> None:
        table = self._catalog.load_table(self._name)
        table.overwrite(table.scan().to_arrow())

    def files(self) -> list[str]:
        found = self._catalog.load_table(self._name).scan().plan_files()
        return [task.file.file_path.removeprefix("file://") for task in found]

    def read(self) -> Rows:
        """By the format's own library."""
        return rows_of(self._catalog.load_table(self._name).scan().to_arrow().to_pylist())

    def read_by_duckdb(self) -> Rows:
        with self._catalog.load_table(self._name).scan().to_duckdb("orders") as connection:
            return sorted(connection.execute("SELECT id, text FROM orders").fetchall())

    def close(self) -> None:
        self._catalog.engine.dispose()


def rows_of(found: list[dict[str, object]]) -> Rows:
    return sorted((row["id"], row["text"]) for row in found)  # type: ignore[misc]


@pytest.fixture(params=[Delta, Iceberg])
def table(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Iterator[Delta | Iceberg]:
    """Three commits of a sink, the first two of which were put together into one file."""
    made: Delta | Iceberg = request.param(tmp_path)
    store = made.store()
    put(store, "a", 0, 1)
    put(store, "b", 5, queue=OTHER)
    made.rewrite()
    put(store, "c", 2)
    yield made
    made.close()


def by_spark_itself(spark: SparkSession, files: list[str]) -> Rows:
    """Without a jar of the format: its library says which files count."""
    return [(row.id, row.text) for row in spark.read.parquet(*files).orderBy("id").collect()]


def by_arrow(_: SparkSession, files: list[str]) -> Rows:
    return rows_of(ds.dataset(files, format="parquet").to_table().to_pylist())


def by_duckdb(_: SparkSession, files: list[str]) -> Rows:
    return sorted(duckdb.read_parquet(files).select("id, text").fetchall())


def test_the_library_of_the_format_and_duckdb_over_it_read_each_row_once(table: Delta | Iceberg) -> None:
    assert table.read() == WRITTEN
    assert table.read_by_duckdb() == WRITTEN


@pytest.mark.parametrize("read", [by_spark_itself, by_arrow, by_duckdb])
def test_the_files_that_count_hold_each_row_once_and_the_folder_holds_more(
    spark: SparkSession,
    tmp_path: Path,
    table: Delta | Iceberg,
    read: Callable[[SparkSession, list[str]], Rows],
) -> None:
    files = table.files()
    assert read(spark, files) == WRITTEN
    every = [str(file) for file in tmp_path.rglob("*.parquet") if "_delta_log" not in file.parts]
    assert len(read(spark, every)) > len(WRITTEN)


def test_spark_counts_whole_commits_as_others_do_while_a_sink_commits_and_files_are_put_together(
    spark: SparkSession, table: Delta | Iceberg
) -> None:
    stop, problems = threading.Event(), list[Exception]()

    def write() -> None:
        store, number = table.store(), 10
        try:
            while not stop.is_set():
                put(store, f"batch{number}", number, number + 1)
                table.rewrite()
                number += 2
        except Exception as error:
            problems.append(error)

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for _ in range(LOOKS):
            files = table.files()
            found = by_spark_itself(spark, files)
            assert found == by_arrow(spark, files) == by_duckdb(spark, files)
            assert len({*found}) == len(found)
            assert (len(found) - len(WRITTEN)) % 2 == 0
    finally:
        stop.set()
        writing.join()
    assert not problems
