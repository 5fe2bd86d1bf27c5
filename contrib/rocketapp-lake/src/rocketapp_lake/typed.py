"""`app.sink` for type checkers, which do not know the methods that plugins add."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Required, TypedDict, Unpack

from rocketapp import RocketApp

if TYPE_CHECKING:
    from rocketapp.plugin import Start
    from rocketapp_lake.evolution import Evolution
    from rocketapp_lake.formats import PartitionBy, WrittenBy
    from rocketapp_lake.rows import BadRows, Transform
    from rocketapp_lake.writer import OnOffsetReset


class SinkOptions(TypedDict, total=False):
    """The keywords of `app.sink`."""

    table: Required[str | os.PathLike[str]]
    """The place of the table: for Parquet and Delta a directory, for `"sql"` a name, for
    `"iceberg"` `catalog.namespace.table`."""
    format: str
    """`"parquet"`, `"delta"`, `"iceberg"`, `"sql"`, or a name that was given to `register_format`."""
    schema: Any
    """What bodies are decoded as: a dataclass, msgspec Struct (or a union of tagged ones), TypedDict, pydantic model or
    Protobuf class, a pyarrow schema, or Spark DDL; None stores bodies, tags and keys."""
    codec: str | None
    """What bodies without a content type are: `"json"`, `"msgpack"`, `"protobuf"`, `"avro"`, or a content type; None:
    as a handler of that type would get them."""
    name: str | None
    """The sink's name in the table, to which its positions belong; None: `app/topic`."""
    group: str | None
    """The consumer group; None: `app-sink-topic`."""
    tags: str
    start: Start
    """Where queues begin that the table has never seen."""
    cluster: str | None
    flush_rows: int
    """Rows at which a batch is cut."""
    flush_bytes: int
    """Bytes of records at which it is cut; at most a quarter of `consumer.cache_max_bytes`."""
    flush_seconds: float
    """Age in seconds of its oldest row at which it is cut."""
    bad_rows: BadRows
    """What a body that cannot be decoded does: stop the sink, fill a column, or go into a table or topic of its own."""
    bad_rows_topic: str | None
    """The topic of `bad_rows="topic"`; None: the table's name and `-bad`."""
    bad_rows_max_ratio: float | None
    """The share of bad rows, 0 to 1, above which a queue stops, of its last 1,000 rows or more; None: 0.05."""
    evolution: Evolution
    """What rows with columns that the table lacks do: stop the sink, or add the columns."""
    partition_by: PartitionBy | None
    """Directories by the day or hour at which brokers stored the messages, in UTC."""
    on_offset_reset: OnOffsetReset
    """What a queue does whose broker does not have what follows in the table: stand still, or begin anew."""
    sort_by: str | Sequence[str] | None
    """Columns by which the rows of each file are sorted."""
    written_by: WrittenBy
    """What writes the files of Parquet, Delta and Iceberg tables: `"spark"`, or `"arrow"`, in the app's own process."""
    staging: str | os.PathLike[str] | None
    """With `format="parquet"`: where files are written before their commit; None: a hidden directory of the table."""
    commit_retries: int
    """Failed attempts to commit one batch after which its queues are given up, and read again from the table."""
    retry_backoff: tuple[float, float]
    """Seconds from an attempt to the next one: the first time, and at most; they double each time."""
    max_buffer_bytes: int | None
    """Bytes of records at which pulls stop; None, and at most: half of `consumer.cache_max_bytes`."""
    compact_every: float | None
    """Seconds after which small files are put together; None: by `rocketapp sink compact` alone."""
    target_file_size: int
    """Bytes of the files that a compaction makes, at most."""
    url: str
    """For `format="sql"`: the database, as SQLAlchemy takes it; without it, `lake.database` of the settings."""
    merge_on: str | Sequence[str]
    """For `format="sql"`: columns of a unique key; a row replaces the one with the same values."""


def sink(app: RocketApp, topic: str, **options: Unpack[SinkOptions]) -> Callable[[Transform], Transform]:
    """`app.sink(topic, ...)`: the topic lands in a table, each message once.

    What it returns is a decorator for a function that takes each batch as a pyarrow.Table, in a thread, and returns the
    one to store, or None for nothing; it may be left alone. Raises SetupError for what cannot work.
    """
    declare: Callable[..., Callable[[Transform], Transform]] = app.sink  # type: ignore[attr-defined]
    return declare(topic, **options)
