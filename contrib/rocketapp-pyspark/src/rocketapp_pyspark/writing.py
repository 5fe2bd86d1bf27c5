"""Spark writes the rows of a batch as Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq

from rocketapp_pyspark.parquet import Write
from rocketapp_pyspark.session import Spark

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FILE_BYTES = 128 * 1024 * 1024
"""Bytes of rows in memory that make another file."""


def by_spark(spark: Spark) -> Write:
    """Arrow writes a file that Spark reads: that costs Spark less than rows that come from Python."""
    known: dict[str, StructType] = {}

    def write(rows: pa.Table, directory: Path) -> None:
        session = spark.session()
        coming = directory.with_name("in.parquet")
        pq.write_table(rows, coming, compression="lz4")
        files = max(1, rows.nbytes // FILE_BYTES)
        # With a schema Spark has no job to run to find it.
        frame = session.read.schema(_schema(session, rows, known)).parquet(str(coming))
        frame.coalesce(files).write.parquet(str(directory))
        coming.unlink()

    return write


def _schema(session: SparkSession, rows: pa.Table, known: dict[str, StructType]) -> StructType:
    name = rows.schema.to_string()
    if name not in known:
        known[name] = session.createDataFrame(rows.slice(0, 0)).schema
    return known[name]
