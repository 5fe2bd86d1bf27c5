"""Spark as the writer of the tables of sinks (rocketapp_lake.writing.BatchWriter)."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketapp import RocketAppError
from rocketapp.plugin import Surface
from rocketapp_lake.errors import FencedError, SinkError
from rocketapp_lake.staging import Files, Write
from rocketapp_lake.writing import AppendToDelta, arranged, files_of, partition_column
from rocketapp_pyspark.session import Spark, cause_of, is_there
from rocketapp_pyspark.settings import SparkConfig, check_java, spark_of

if TYPE_CHECKING:
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

    def append_to_delta(self) -> AppendToDelta:
        found = version("pyspark")
        if not found.startswith(f"{DELTA_FOR}."):
            raise SinkError(
                f"written_by='spark' with format='delta' is for PySpark {DELTA_FOR}, whose jar of Delta is tested, "
                f"and this is {found}: leave written_by out"
            )
        if not self.spark.knows_delta and not is_there():
            raise SinkError(f"written_by='spark' with format='delta' needs a jar: [spark] conf = [\"{DELTA_JAR}\"]")
        return self._append

    def _append(self, place: str, rows: pa.Table, options: Mapping[str, str]) -> None:
        frame = self.spark.session().createDataFrame(rows).coalesce(files_of(rows))
        try:
            frame.write.format("delta").mode("append").options(**options).save(place)
        except Exception as error:
            cause = cause_of(error)
            if "DELTA_CONCURRENT_TRANSACTION" in cause:
                raise FencedError(f"{place}: another owner was faster") from None
            if "DELTA_VIOLATE_CONSTRAINT" in cause or "DELTA_NOT_NULL_CONSTRAINT" in cause:
                raise SinkError(f"{place}: the table refuses rows: {cause}") from None
            raise NotWrittenError(f"{place}: {cause}") from error

    def stop(self) -> None:
        self.spark.stop()


class NotWrittenError(RocketAppError):
    """Spark has not written a batch, or has, and could not say so. The text is one line."""


DELTA_FOR, DELTA_JAR = "4.1", "spark.jars.packages=io.delta:delta-spark_4.1_2.13:4.4.0"
"""The version of Spark, and what its settings say for the jar."""


SPARING: Mapping[str, str] = {
    # No files with checksums and no mark of success, which nobody reads: Hadoop starts a process for each of them.
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # How large values are in memory, page by page: readers look at the least and the greatest value, which stay.
    "parquet.size.statistics.enabled": "false",
}
"""What a file of Spark does without, for a tenth of its CPU."""


def by_spark(spark: Spark, partition_by: Sequence[str] = (), sort_by: Sequence[str] = ()) -> Write:
    """Arrow writes a file that Spark reads: that costs Spark less than rows that come from Python."""
    known: dict[pa.Schema, StructType] = {}
    partitions = [partition_column(one) for one in partition_by]

    def write(rows: pa.Table, files: Files) -> None:
        rows = arranged(rows, partition_by, sort_by)
        session, coming, written = spark.session(), files.scratch / "in.parquet", files.scratch / "out"
        files.scratch.mkdir(parents=True)
        short = repeated(rows)
        pq.write_table(rows, coming, compression="none", use_dictionary=short)
        if rows.schema not in known:
            known[rows.schema] = session.createDataFrame(rows.slice(0, 0)).schema
        # With a schema Spark has no job to run to find it.
        frame = session.read.schema(known[rows.schema]).parquet(str(coming)).coalesce(files_of(rows))
        if sort_by:
            # In the order of the partitions first, as the writer would sort them itself otherwise.
            frame = frame.sortWithinPartitions(*partitions, *sort_by)
        plain = {f"parquet.enable.dictionary#{name}": "false" for name in rows.column_names if name not in short}
        frame.write.options(**SPARING, **plain).partitionBy(*partitions).parquet(str(written))
        for file in sorted(written.rglob("*.parquet")):
            # Renamed, or copied where the table is a file system of its own.
            shutil.move(file, files.new(str(file.relative_to(written))))

    return write


def repeated(rows: pa.Table) -> list[str]:
    """The columns whose values come again, by a look at the first rows.

    Only they get smaller by a dictionary. Bodies, keys and offsets would fill one, at a quarter of Spark's CPU, before
    its writer sees that they do not come again.
    """
    head = rows.slice(0, 1_000)
    flat = [name for name in head.column_names if not pa.types.is_nested(head[name].type)]
    return [name for name in flat if 2 * len(pc.unique(head[name])) <= len(head)]
