"""The rows of a batch as Parquet files: by Arrow, or by what another distribution brings along."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketapp.plugin import Surface
from rocketapp_lake.errors import SinkError
from rocketapp_lake.staging import Write

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


def by_arrow(partition_by: str | None = None, sort_by: Sequence[str] = ()) -> Write:
    """Arrow writes the files in this process: no session is started, and rows are not handed to another one."""

    def write(rows: pa.Table, directory: Path) -> None:
        rows = arranged(rows, partition_by, sort_by)
        # Spark writes every column as one that may be empty: with both, the files of a table are alike.
        rows = rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
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
    each = -(-rows.num_rows // files_of(rows))
    for number, start in enumerate(range(0, rows.num_rows, each)):
        # Without Arrow's own schema readers see plain columns, as in files of Spark.
        place = directory / f"part-{number:05d}.snappy.parquet"
        pq.write_table(rows.slice(start, each), place, store_schema=False)


def arranged(rows: pa.Table, partition_by: str | None, sort_by: Sequence[str]) -> pa.Table:
    """Sorted, with the column of the partition. Raises SinkError for rows that lack a column."""
    if partition_by is not None:
        rows = partitioned(rows, partition_by)
    missing = [column for column in sort_by if column not in rows.column_names]
    if missing:
        raise SinkError(f"sort_by={missing[0]!r}: the rows have the columns {', '.join(rows.column_names)}")
    return rows.sort_by([(column, "ascending") for column in sort_by]) if sort_by else rows


def files_of(rows: pa.Table) -> int:
    return max(1, int(rows.nbytes) // FILE_BYTES)


GROUP = "rocketapp_lake.writers"
"""The entry points of batch writers, by the names that `written_by=` has."""


class BatchWriter(Protocol):
    """Writes the files of tables in the place of Arrow: one for all sinks of a running app."""

    def start(self) -> None:
        """The app starts. What takes long goes on beside it; raises ConfigError for what cannot work."""
        ...

    def write(self, partition_by: str | None, sort_by: Sequence[str]) -> Write:
        """What writes the files of one table."""
        ...

    def stop(self) -> None:
        """The app has stopped. Blocks."""
        ...


def is_known(name: str) -> bool:
    """Whether a distribution has this batch writer."""
    return bool(entry_points(group=GROUP, name=name))


def batch_writer(name: str, surface: Surface) -> BatchWriter:
    """Of an app that starts. Raises ConfigError for settings that cannot work."""
    (found,) = entry_points(group=GROUP, name=name)
    made: BatchWriter = found.load()(surface)
    return made
