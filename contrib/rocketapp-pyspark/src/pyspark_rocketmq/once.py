"""`foreachBatch(delta_once(...))`, `iceberg_once`, `sql_once`: a stream's batches in a table, each once.

Spark may run a batch again after a crash. To the stores of rocketapp-lake a stream is one more sink of a table: its
query is a queue, and the numbers of its batches are the offsets. Rows and number are one commit, made on the very
state whose number was read, so a batch that the table has is left out, and of two writers one is refused and looks
again. Rows pass through the driver, so a batch has to fit there.

`name`: one for each checkpoint, because the numbers of batches begin anew with it. The table keeps the id of the query,
which its checkpoint has, and a batch of another one is refused: its number does not say whether its rows are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from pyspark_rocketmq.problems import WriteError
from rocketapp import MessageQueue
from rocketapp_lake.columns import as_tables_have
from rocketapp_lake.committer import behind, until_there
from rocketapp_lake.positions import Span
from rocketapp_lake.records import Commit, Head

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from rocketapp_lake.store import Store

StoreBatch = Callable[["DataFrame", int], None]


def delta_once(table: str, name: str, *, storage_options: Mapping[str, str] | None = None) -> StoreBatch:
    """A function for `foreachBatch` that appends to this Delta table, which it creates when it is not there.

    `storage_options`: those of `deltalake`, for tables in object stores.
    """

    def store() -> Store:
        from rocketapp_lake.delta import DeltaStore

        return DeltaStore(table, name, storage=storage_options)

    return _once(store, table, name)


def iceberg_once(catalog: Mapping[str, str], table: str, name: str) -> StoreBatch:
    """A function for `foreachBatch` that appends to this Iceberg table. Needs `rocketapp-lake[iceberg]`.

    `catalog`: the properties of `pyiceberg`, such as `uri`.
    """

    def store() -> Store:
        from pyiceberg.catalog import load_catalog

        from rocketapp_lake.iceberg import IcebergStore

        return IcebergStore(lambda: load_catalog("once", **catalog), table, name)

    return _once(store, table, name)


def sql_once(url: str, table: str, name: str) -> StoreBatch:
    """A function for `foreachBatch` that inserts into this table of a database. Needs `rocketapp-lake[sql]`.

    `url`: SQLAlchemy's. `table`: with or without `schema.` in front.
    """

    def store() -> Store:
        from rocketapp_lake.sql import SqlStore
        from rocketapp_lake.sql_loading import Database

        return SqlStore(table, name, Database(url))

    return _once(store, table, name)


def _once(new_store: Callable[[], Store], table: str, name: str) -> StoreBatch:
    """`new_store`: made anew for each batch, as Spark may hand the function to another process."""

    def store_batch(frame: DataFrame, batch: int) -> None:
        rows, query = cache(lambda: as_tables_have(frame.toArrow())), _query_of(frame)

        def numbered(head: Head) -> tuple[Commit, pa.Table] | None:
            if _has(head, query, table, name, batch):
                return None
            commit = behind(head, name, {query: batch + 1}, datetime.now(UTC).timestamp())
            return replace(commit, spans={query: Span(batch, batch + 1)}, rows=rows().num_rows), rows()

        until_there(new_store(), name, numbered)

    return store_batch


def _has(head: Head, query: MessageQueue, table: str, name: str, batch: int) -> bool:
    """Whether the table has this batch. Raises WriteError for an older one, and for one of another query."""
    done = next((position - 1 for position in head.vector.values()), -1)
    if head.vector.keys() - {query}:
        raise WriteError(
            f"{table} has batch {done} of {name}, and this is of another checkpoint: give each checkpoint its own name"
        )
    if batch < done:
        raise WriteError(f"{table} has batch {done} of {name}, this is {batch}: its checkpoint is older than the table")
    return batch == done


def _query_of(frame: DataFrame) -> MessageQueue:
    """The query whose batch this is, by its id, which stands in its checkpoint. Spark Connect does not tell it."""
    context = getattr(frame.sparkSession, "sparkContext", None)
    return MessageQueue((context and context.getLocalProperty("sql.streaming.queryId")) or "", "spark", 0)
