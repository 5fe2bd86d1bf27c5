"""Spark as the writer of the tables of sinks (rocketapp_lake.writing.BatchWriter)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from rocketapp.plugin import Surface
from rocketapp_lake.staging import Write
from rocketapp_lake.writing import arranged, files_of, partition_column
from rocketapp_pyspark.session import Spark, is_there
from rocketapp_pyspark.settings import SparkConfig, check_java, spark_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class SparkWriter:
    """One session for all sinks of an app."""

    def __init__(self, spark: Spark) -> None:
        self.spark = spark

    @classmethod
    def of(cls, surface: Surface) -> SparkWriter:
        """Of an app that starts. Raises ConfigError for settings that cannot work."""
        return cls(spark_of(surface.options(SparkConfig)))

    def start(self) -> None:
        if not is_there():
            check_java(os.environ)
        self.spark.start_soon()

    def write(self, partition_by: Sequence[str], sort_by: Sequence[str]) -> Write:
        return by_spark(self.spark, partition_by, sort_by)

    def stop(self) -> None:
        self.spark.stop()


def by_spark(spark: Spark, partition_by: Sequence[str] = (), sort_by: Sequence[str] = ()) -> Write:
    """Arrow writes a file that Spark reads: that costs Spark less than rows that come from Python."""
    known: dict[str, StructType] = {}

    def write(rows: pa.Table, directory: Path) -> None:
        rows = arranged(rows, partition_by, sort_by)
        session = spark.session()
        coming = directory.with_name("in.parquet")
        pq.write_table(rows, coming, compression="lz4")
        # With a schema Spark has no job to run to find it.
        frame = session.read.schema(_schema(session, rows, known)).parquet(str(coming))
        frame = frame.coalesce(files_of(rows))
        if sort_by:
            # In the order of the partitions first, as the writer would sort them itself otherwise.
            frame = frame.sortWithinPartitions(*map(partition_column, partition_by), *sort_by)
        frame.write.partitionBy(*map(partition_column, partition_by)).parquet(str(directory))
        coming.unlink()

    return write


def _schema(session: SparkSession, rows: pa.Table, known: dict[str, StructType]) -> StructType:
    name = rows.schema.to_string()
    if name not in known:
        known[name] = session.createDataFrame(rows.slice(0, 0)).schema
    return known[name]
