"""The rows of a batch as Parquet files: by Arrow, or by what another distribution brings along."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rocketapp.plugin import Surface
from rocketapp_lake.columns import nullable
from rocketapp_lake.errors import SinkError
from rocketapp_lake.staging import Files, Write

FILE_BYTES = 128 * 1024 * 1024
"""Bytes of rows in memory that make another file."""


STORED = "_rmq_store_ts"
TIMES = {"day": "%Y-%m-%d", "hour": "%Y-%m-%d-%H"}


def partition_column(partition_by: str) -> str:
    """Of a time its name begins with a letter: readers pass over directories that begin with `_`."""
    return f"rmq_{partition_by}" if partition_by in TIMES else partition_by


def partitioned(rows: pa.Table, partition_by: str) -> pa.Table:
    """With the column of the partition; of a time, in UTC: `2026-11-22` or `2026-11-22-05`.

    The producer's clock would not do: one that is wrong makes a partition for each message.
    """
    needed = STORED if partition_by in TIMES else partition_by
    if needed not in rows.column_names:
        raise SinkError(f"partition_by={partition_by!r} needs the column {needed}: the rows do not have it")
    if partition_by not in TIMES:
        return rows
    return rows.append_column(partition_column(partition_by), pc.strftime(rows[STORED], TIMES[partition_by]))


def by_arrow(partition_by: Sequence[str] = (), sort_by: Sequence[str] = ()) -> Write:
    """Arrow writes the files in this process: no session is started, and rows are not handed to another one.

    `partition_by`: one time at most.
    """

    def write(rows: pa.Table, files: Files) -> None:
        rows = arranged(rows, partition_by, sort_by)
        # Spark writes every column as one that may be empty: with both, the files of a table are alike.
        rows = rows.cast(nullable(rows.schema))
        for column in map(partition_column, partition_by):
            for value in pc.unique(rows[column]).to_pylist():
                part = rows.filter(pc.equal(rows[column], value)).drop_columns([column])
                _write_files(part, f"{column}={value}/", files)
        if not partition_by:
            _write_files(rows, "", files)

    return write


def _write_files(rows: pa.Table, partition: str, files: Files) -> None:
    each = -(-rows.num_rows // files_of(rows))
    for number, start in enumerate(range(0, rows.num_rows, each)):
        # Without Arrow's own schema readers see plain columns, as in files of Spark.
        file = files.new(f"{partition}part-{number:05d}.snappy.parquet")
        pq.write_table(rows.slice(start, each), file, store_schema=False)


def arranged(rows: pa.Table, partition_by: Sequence[str], sort_by: Sequence[str]) -> pa.Table:
    """Sorted, with the columns of the partitions. Raises SinkError for rows that lack a column."""
    for one in partition_by:
        rows = partitioned(rows, one)
    missing = [column for column in sort_by if column not in rows.column_names]
    if missing:
        raise SinkError(f"sort_by={missing[0]!r}: the rows have the columns {', '.join(rows.column_names)}")
    return rows.sort_by([(column, "ascending") for column in sort_by]) if sort_by else rows


def files_of(rows: pa.Table) -> int:
    return max(1, int(rows.nbytes) // FILE_BYTES)


GROUP = "rocketapp_lake.writers"
"""The entry points of batch writers, by the names that `written_by=` has."""


AppendToDelta = Callable[[str, pa.Table, Mapping[str, str]], None]
"""Appends rows to the Delta table in this place, by a commit with these of Delta's options: `txnAppId`, `txnVersion`,
`userMetadata`. A version that is there already adds nothing, without a word, or raises FencedError."""


class BatchWriter(Protocol):
    """Writes the files of tables in the place of Arrow: one for all sinks of a running app."""

    def start(self) -> None:
        """The app starts. What takes long goes on beside it; raises ConfigError for what cannot work."""
        ...

    def write(self, partition_by: Sequence[str], sort_by: Sequence[str]) -> Write:
        """What writes the files of one table."""
        ...

    def append_to_delta(self) -> AppendToDelta:
        """What writes Delta tables. Raises SinkError where it cannot."""
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
