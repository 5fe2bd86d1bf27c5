"""Spark writes the tables of sinks that ask for it: the same files, the same rows."""

from __future__ import annotations

import errno
import logging
import os
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType
from sink_shop import Placed, Shop
from store_suite import put
from test_columns import DDL
from test_writing import EARLY, LATE, ROWS, parts

from rocketapp_lake.arrow_columns import schema_of_ddl
from rocketapp_lake.columns import TIMESTAMP
from rocketapp_lake.errors import SinkError
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.writing import by_arrow
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.writing import SparkWriter, by_spark

pytestmark = pytest.mark.timeout(300)


@pytest.mark.parametrize("partition_by", [None, "day"])
def test_rows_of_a_file_are_sorted_by_the_columns_that_are_given(
    spark: SparkSession, tmp_path: Path, partition_by: str | None
) -> None:
    rows = pa.table(
        {"a": [2, 1, 2, 1], "b": [4, 3, 2, 1], "_rmq_store_ts": pa.array([LATE, EARLY, LATE, EARLY], TIMESTAMP)}
    )
    by_spark(Spark("local[2]", {}), [partition_by] if partition_by else [], ["a", "b"])(rows, Placed(tmp_path / "out"))
    found = [[(row["a"], row["b"]) for row in pq.ParquetFile(file).read().to_pylist()] for file in parts(tmp_path)]
    assert found == ([[(2, 2), (2, 4)], [(1, 1), (1, 3)]] if partition_by else [[(1, 1), (1, 3), (2, 2), (2, 4)]])


def test_rows_without_the_column_that_sorts_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="sort_by='b': the rows have the columns id, _rmq_store_ts"):
        by_spark(Spark("local[2]", {}), [], ["b"])(ROWS.select(["id", "_rmq_store_ts"]), Placed(tmp_path / "out"))


def test_every_kind_of_column_is_written_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    by_spark(Spark("local[2]", {}), ["day"])(ROWS, Placed(tmp_path / "out"))
    found = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    assert found.sort_by("id").select(ROWS.column_names).to_pylist() == ROWS.to_pylist()
    assert sorted(path.name for path in (tmp_path / "out").glob("rmq_*")) == [
        "rmq_day=2026-11-22",
        "rmq_day=2026-11-23",
    ]


def test_only_columns_whose_values_come_again_have_a_dictionary(spark: SparkSession, tmp_path: Path) -> None:
    numbers = range(2_000)
    rows = pa.table(
        {
            "topic": ["orders"] * len(numbers),
            "offset": numbers,
            "body": [b"body %d" % n for n in numbers],
            "lists": [[n] for n in numbers],
        }
    )
    by_spark(Spark("local[2]", {}))(rows, Placed(tmp_path / "out"))
    (file,) = parts(tmp_path)
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(number) for number in range(3)]
    assert [column.path_in_schema for column in columns if column.has_dictionary_page] == ["topic"]
    assert pq.ParquetFile(file).read().to_pylist() == rows.to_pylist()


def test_files_of_both_writers_have_the_same_columns_so_that_a_table_may_change_its_writer(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = ROWS.cast(pa.schema([field.with_nullable(field.name != "id") for field in ROWS.schema]))
    by_arrow()(rows, Placed(tmp_path / "arrow" / "out"))
    by_spark(Spark("local[2]", {}))(rows, Placed(tmp_path / "spark" / "out"))
    one, other = (pq.ParquetFile(parts(tmp_path / name)[0]).schema_arrow for name in ("arrow", "spark"))
    assert one.remove_metadata() == other.remove_metadata()


@pytest.mark.parametrize("is_mount", [False, True])
def test_no_folder_of_a_table_vanishes_while_spark_writes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mount: bool
) -> None:
    """Its own folders are beside the table, also where that is a file system of its own."""
    table, rename = tmp_path / "table", os.rename

    def refused(source: Path, target: Path) -> None:
        if Path(source).is_relative_to(table) != Path(target).is_relative_to(table):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(source, target)

    if is_mount:
        monkeypatch.setattr(os, "rename", refused)
    store, done, seen = ParquetStore(table, "one", write=by_spark(Spark("local[2]", {}), ["id"])), False, set[Path]()

    def look() -> None:
        while not done:
            seen.update(place for place in table.rglob("*") if place.is_dir())

    looking = threading.Thread(target=look)
    looking.start()
    try:
        put(store, "a", 0, 1)
    finally:
        done = True
        looking.join()
    assert sorted(row["id"] for row in ds.dataset(table, partitioning="hive").to_table().to_pylist()) == [0, 1]
    assert [place for place in seen if not place.is_dir()] == []
    assert list((tmp_path / ".table.writing").iterdir()) == []


def test_ddl_means_what_spark_takes_it_for(spark: SparkSession) -> None:
    found = StructType.fromDDL(DDL)
    rows = spark.createDataFrame(schema_of_ddl(DDL).empty_table())
    assert [(field.name, field.nullable) for field in found] == [(one.name, one.nullable) for one in schema_of_ddl(DDL)]
    assert [field.dataType.simpleString() for field in found] == [
        field.dataType.simpleString() for field in rows.schema
    ]


@pytest.mark.parametrize("is_setting", [False, True])
async def test_a_topic_lands_in_a_directory_by_the_word_of_the_sink_or_of_the_settings(
    shop: Shop, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, is_setting: bool
) -> None:
    options = {"format": "parquet", "sort_by": "id", "flush_rows": 10}
    if is_setting:
        monkeypatch.setenv("ROCKETAPP_LAKE__WRITER", "spark")
    else:
        options["written_by"] = "spark"
    async with shop.app(**options, flush_seconds=3600.0) as app:
        await shop.send(app, [7, 3, 9, 1, 5, 8, 2, 6, 4, 0])
        await shop.has(*range(10))
    (file,) = shop.table.glob("*.parquet")
    assert pq.ParquetFile(file).metadata.created_by.startswith("parquet-mr")
    assert pq.ParquetFile(file).read()["id"].to_pylist() == list(range(10))


async def test_without_a_word_for_it_spark_writes_nothing(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    options = {"format": "parquet", "sort_by": "id", "partition_by": "day", "flush_rows": 10}
    async with shop.app(**options, flush_seconds=3600.0) as app:
        await shop.send(app, [7, 3, 9, 1, 5, 8, 2, 6, 4, 0])
        await shop.has(*range(10))
    (file,) = shop.table.glob("rmq_day=*/*.snappy.parquet")
    assert pq.ParquetFile(file).metadata.created_by.startswith("parquet-cpp")
    assert pq.ParquetFile(file).read()["id"].to_pylist() == list(range(10))
    assert not [record for record in caplog.records if record.getMessage().startswith("Spark ")]


@pytest.mark.parametrize(
    ("installed", "problem"),
    [("4.3.0", "is for PySpark 4.1, whose jar of Delta is tested, and this is 4.3.0"), ("4.1.4", "needs a jar: ")],
)
def test_delta_by_another_version_or_without_its_jar_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, installed: str, problem: str
) -> None:
    monkeypatch.setattr("rocketapp_pyspark.writing.version", lambda name: installed)
    monkeypatch.setattr("rocketapp_pyspark.writing.is_there", lambda: False)
    with pytest.raises(SinkError, match=problem):
        SparkWriter(Spark("local[2]", {})).append_to_delta()
