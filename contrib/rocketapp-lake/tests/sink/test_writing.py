"""Arrow writes the files of tables, in partitions by store time."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from sink_shop import Placed

from rocketapp_lake import writing
from rocketapp_lake.columns import TIMESTAMP
from rocketapp_lake.errors import SinkError
from rocketapp_lake.writing import by_arrow, partitioned

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


@pytest.mark.parametrize("partition_by", [None, "day"])
def test_rows_of_a_file_are_sorted_by_the_columns_that_are_given(tmp_path: Path, partition_by: str | None) -> None:
    rows = pa.table(
        {"a": [2, 1, 2, 1], "b": [4, 3, 2, 1], "_rmq_store_ts": pa.array([LATE, EARLY, LATE, EARLY], TIMESTAMP)}
    )
    by_arrow([partition_by] if partition_by else [], ["a", "b"])(rows, Placed(tmp_path / "out"))
    found = [[(row["a"], row["b"]) for row in pq.ParquetFile(file).read().to_pylist()] for file in parts(tmp_path)]
    assert found == ([[(2, 2), (2, 4)], [(1, 1), (1, 3)]] if partition_by else [[(1, 1), (1, 3), (2, 2), (2, 4)]])


def parts(directory: Path) -> list[Path]:
    return sorted((directory / "out").rglob("*.parquet"))


def test_rows_without_the_column_that_sorts_them_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SinkError, match="sort_by='b': the rows have the columns id, _rmq_store_ts"):
        by_arrow([], ["b"])(ROWS.select(["id", "_rmq_store_ts"]), Placed(tmp_path / "out"))


def test_every_kind_of_column_is_written_as_it_was(tmp_path: Path) -> None:
    by_arrow(["day"])(ROWS, Placed(tmp_path / "out"))
    found = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    assert found.sort_by("id").select(ROWS.column_names).to_pylist() == ROWS.to_pylist()
    assert sorted(path.name for path in (tmp_path / "out").glob("rmq_*")) == [
        "rmq_day=2026-11-22",
        "rmq_day=2026-11-23",
    ]


def test_many_rows_are_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "FILE_BYTES", 1000)
    by_arrow()(pa.table({"id": range(250)}), Placed(tmp_path / "out"))
    found = [pq.ParquetFile(file).read()["id"].to_pylist() for file in parts(tmp_path)]
    assert found == [list(range(125)), list(range(125, 250))]
