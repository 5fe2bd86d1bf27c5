"""The machine and the pinned packages can run Spark at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession


def test_what_arrow_wrote_spark_reads_and_writes_for_arrow(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"body": pa.array([b"a", b"b"]), "offset": pa.array([1, 2])})
    pq.write_table(rows, tmp_path / "in.parquet")
    spark.read.parquet(str(tmp_path / "in.parquet")).write.parquet(str(tmp_path / "out"))
    assert pq.read_table(tmp_path / "out").sort_by("offset").to_pylist() == rows.to_pylist()
