"""Spark and Arrow write the same files, in partitions by store time."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from rocketapp_pyspark import writing
from rocketapp_pyspark.columns import TIMESTAMP
from rocketapp_pyspark.errors import SinkError
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.staging import Write
from rocketapp_pyspark.writing import by_arrow, by_spark, partitioned

LATE, EARLY = datetime(2026, 11, 22, 23, 59, tzinfo=UTC), datetime(2026, 11, 23, 0, 1, tzinfo=UTC)
ROWS = pa.table(
    {
        "id": [1, 2],
        "tags": pa.array([["a"], None], pa.list_(pa.string())),
        "by_key": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
        "_rmq_store_ts": pa.array([LATE, EARLY], TIMESTAMP),
    }
)


@pytest.mark.parametrize(
    ("partition_by", "column", "values"),
    [
        ("day", "rmq_day", ["2026-11-22", "2026-11-23"]),
        ("hour", "rmq_hour", ["2026-11-22-23", "2026-11-23-00"]),
    ],
)
def test_partitions_are_by_store_time_in_utc(partition_by: str, column: str, values: list[str]) -> None:
    assert partitioned(ROWS, partition_by)[column].to_pylist() == values


def test_partitions_need_the_time_at_which_messages_were_stored() -> None:
    with pytest.raises(SinkError, match="needs the column _rmq_store_ts"):
        partitioned(ROWS.select(["id"]), "day")


WRITERS = [pytest.param(False, id="arrow"), pytest.param(True, id="spark", marks=pytest.mark.spark)]


@pytest.fixture
def writer(is_by_spark: bool, request: pytest.FixtureRequest) -> Callable[..., Write]:
    if not is_by_spark:
        return by_arrow
    request.getfixturevalue("spark")
    return partial(by_spark, Spark("local[2]", {}))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_by_spark", WRITERS)
@pytest.mark.parametrize("partition_by", [None, "day"])
def test_rows_of_a_file_are_sorted_by_the_columns_that_are_given(
    writer: Callable[..., Write], tmp_path: Path, partition_by: str | None
) -> None:
    rows = pa.table(
        {"a": [2, 1, 2, 1], "b": [4, 3, 2, 1], "_rmq_store_ts": pa.array([LATE, EARLY, LATE, EARLY], TIMESTAMP)}
    )
    writer(partition_by, ["a", "b"])(rows, tmp_path / "out")
    found = [[(row["a"], row["b"]) for row in pq.ParquetFile(file).read().to_pylist()] for file in parts(tmp_path)]
    assert found == ([[(2, 2), (2, 4)], [(1, 1), (1, 3)]] if partition_by else [[(1, 1), (1, 3), (2, 2), (2, 4)]])


def parts(directory: Path) -> list[Path]:
    return sorted((directory / "out").rglob("*.parquet"))


@pytest.mark.parametrize("make", [by_arrow, partial(by_spark, Spark("local[2]", {}))])
def test_rows_without_the_column_that_sorts_them_are_refused(make: Callable[..., Write], tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="sort_by='b': the rows have the columns id, _rmq_store_ts"):
        make(None, ["b"])(ROWS.select(["id", "_rmq_store_ts"]), tmp_path / "out")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("is_by_spark", WRITERS)
def test_every_kind_of_column_is_written_as_it_was(writer: Callable[..., Write], tmp_path: Path) -> None:
    writer("day")(ROWS, tmp_path / "out")
    found = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    assert found.sort_by("id").select(ROWS.column_names).to_pylist() == ROWS.to_pylist()
    assert sorted(path.name for path in (tmp_path / "out").glob("rmq_*")) == [
        "rmq_day=2026-11-22",
        "rmq_day=2026-11-23",
    ]


@pytest.mark.timeout(300)
def test_files_of_both_writers_have_the_same_columns_so_that_a_table_may_change_its_writer(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = ROWS.cast(pa.schema([field.with_nullable(field.name != "id") for field in ROWS.schema]))
    by_arrow()(rows, tmp_path / "arrow" / "out")
    (tmp_path / "spark").mkdir()
    by_spark(Spark("local[2]", {}))(rows, tmp_path / "spark" / "out")
    one, other = (pq.ParquetFile(parts(tmp_path / name)[0]).schema_arrow for name in ("arrow", "spark"))
    assert one.remove_metadata() == other.remove_metadata()


def test_many_rows_are_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "FILE_BYTES", 1000)
    by_arrow()(pa.table({"id": range(250)}), tmp_path / "out")
    found = [pq.ParquetFile(file).read()["id"].to_pylist() for file in parts(tmp_path)]
    assert found == [list(range(125)), list(range(125, 250))]
