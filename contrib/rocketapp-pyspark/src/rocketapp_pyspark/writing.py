"""The rows of a batch as Parquet files: by Spark, or by Arrow alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketapp_pyspark.errors import SinkError
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.staging import Write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

FILE_BYTES = 128 * 1024 * 1024
"""Bytes of rows in memory that make another file."""


STORED = "_rmq_store_ts"
_PATTERNS = {"day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}


def partition_column(partition_by: str) -> str:
    """Its name begins with a letter: readers pass over directories that begin with `_`."""
    return f"rmq_{partition_by}"


def partitioned(rows: pa.Table, partition_by: str) -> pa.Table:
    """With the column of the partition, in UTC: `2026-11-22` or `2026-11-22-05`.

    The producer's clock would not do: one that is wrong makes a partition for each message.
    """
    if STORED not in rows.column_names:
        raise SinkError(f"partition_by={partition_by!r} needs the column {STORED}: the function of the sink removed it")
    value = pc.strftime(rows[STORED], _PATTERNS[partition_by])
    return rows.append_column(partition_column(partition_by), value)


def by_spark(spark: Spark, partition_by: str | None = None, sort_by: Sequence[str] = ()) -> Write:
    """Arrow writes a file that Spark reads: that costs Spark less than rows that come from Python."""
    known: dict[str, StructType] = {}

    def write(rows: pa.Table, directory: Path) -> None:
        rows = _arranged(rows, partition_by, sort_by)
        session = spark.session()
        coming = directory.with_name("in.parquet")
        pq.write_table(rows, coming, compression="lz4")
        # With a schema Spark has no job to run to find it.
        frame = session.read.schema(_schema(session, rows, known)).parquet(str(coming))
        frame = frame.coalesce(_files(rows))
        if sort_by:
            # In the order of the partitions first, as the writer would sort them itself otherwise.
            before = [] if partition_by is None else [partition_column(partition_by)]
            frame = frame.sortWithinPartitions(*before, *sort_by)
        writer = frame.write
        if partition_by is not None:
            writer = writer.partitionBy(partition_column(partition_by))
        writer.parquet(str(directory))
        coming.unlink()

    return write


def by_arrow(partition_by: str | None = None, sort_by: Sequence[str] = ()) -> Write:
    """Arrow writes the files in this process: no session is started, and rows are not handed to another one."""

    def write(rows: pa.Table, directory: Path) -> None:
        rows = _arranged(rows, partition_by, sort_by)
        # Spark writes every column as one that may be empty: with both, the files of a table are alike.
        rows = rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
        if sort_by:
            rows = rows.sort_by([(column, "ascending") for column in sort_by])
        if partition_by is None:
            _write_files(rows, directory)
            return
        column = partition_column(partition_by)
        for value in pc.unique(rows[column]).to_pylist():
            part = rows.filter(pc.equal(rows[column], value)).drop_columns([column])
            _write_files(part, directory / f"{column}={value}")

    return write


def _write_files(rows: pa.Table, directory: Path) -> None:
    directory.mkdir(parents=True)
    each = -(-rows.num_rows // _files(rows))
    for number, start in enumerate(range(0, rows.num_rows, each)):
        # Without Arrow's own schema readers see plain columns, as in files of Spark.
        place = directory / f"part-{number:05d}.snappy.parquet"
        pq.write_table(rows.slice(start, each), place, store_schema=False)


def _arranged(rows: pa.Table, partition_by: str | None, sort_by: Sequence[str]) -> pa.Table:
    """With the column of the partition. Raises SinkError for rows that lack a column."""
    if partition_by is not None:
        rows = partitioned(rows, partition_by)
    missing = [column for column in sort_by if column not in rows.column_names]
    if missing:
        raise SinkError(f"sort_by={missing[0]!r}: the rows have the columns {', '.join(rows.column_names)}")
    return rows


def _files(rows: pa.Table) -> int:
    return max(1, int(rows.nbytes) // FILE_BYTES)


def _schema(session: SparkSession, rows: pa.Table, known: dict[str, StructType]) -> StructType:
    name = rows.schema.to_string()
    if name not in known:
        known[name] = session.createDataFrame(rows.slice(0, 0)).schema
    return known[name]
