"""The keywords of `app.sink`, each declared once: its type, its default, and the formats that take it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Concatenate, Literal, ParamSpec

from msgspec import Meta

from rocketapp import RocketApp
from rocketapp.plugin import Start
from rocketapp_lake.batches import DEFAULTS

if TYPE_CHECKING:
    import pyarrow as pa

BadRows = Literal["fail", "column", "table", "topic"]
Evolution = Literal["fail", "add"]
OnOffsetReset = Literal["fail", "new_epoch"]
WrittenBy = Literal["spark", "arrow"]
Until = Literal["now"]
FormatName = Literal["parquet", "delta", "iceberg", "sql"]
Name = Annotated[str, Meta(min_length=1)]
Count = Annotated[int, Meta(ge=1)]
Seconds = Annotated[float, Meta(gt=0, lt=10**9)]
"""Some 30 years at most: what a clock can be set to."""
Transform = Callable[["pa.Table"], "pa.Table | None"]
"""The user's function of a sink: it takes the rows of a batch, and returns those to store."""
TARGET_FILE_SIZE = 128 * 1024 * 1024
"""Bytes of the files that a compaction makes, unless a sink says otherwise."""
FILES = ("parquet", "delta", "iceberg")
ONLY: Mapping[str, Sequence[str]] = {
    "partition_by": FILES,
    "sort_by": FILES,
    "written_by": FILES[:2],
    "url": ("sql",),
    "merge_on": ("sql",),
}
"""The formats that take a keyword which not all of them take."""


@dataclass(slots=True, kw_only=True)
class SinkOptions:
    """What `app.sink` is told about one sink."""

    table: str | os.PathLike[str]
    """The place of the table: for Parquet and Delta a directory, for `"sql"` a name, for
    `"iceberg"` `catalog.namespace.table`. `{topic}` in it stands for the topic."""
    format: FormatName = "delta"
    schema: Any = None
    """What bodies are decoded as: a dataclass, msgspec Struct (or a union of tagged ones), TypedDict, pydantic model or
    Protobuf class, a pyarrow schema, or Spark DDL; None stores bodies, tags and keys."""
    codec: str | None = None
    """What bodies without a content type are: `"json"`, `"msgpack"`, `"protobuf"`, `"avro"`, or a content type; None:
    as a handler of that type would get them."""
    name: Name | None = None
    """The sink's name in the table, to which its positions belong; None: `app/topic`."""
    group: str | None = None
    """The consumer group; None: `app-sink-topic`."""
    tags: str | Sequence[str] = "*"
    start: Start = "first"
    """Where queues begin that the table has never seen."""
    until: Until | None = None
    """`"now"`: what is there as a queue begins, as for a backfill; `rocketapp run --exit-when-idle` ends then."""
    cluster: str | None = None
    flush_rows: Count = DEFAULTS.rows
    """Rows at which a batch is cut."""
    flush_bytes: Count = DEFAULTS.bytes
    """Bytes of records at which it is cut; at most a quarter of `consumer.cache_max_bytes`."""
    flush_seconds: Seconds = DEFAULTS.seconds
    """Age in seconds of its oldest row at which it is cut."""
    bad_rows: BadRows = "fail"
    """What a body that cannot be decoded does: stop the sink, fill a column, or go into a table or topic of its own."""
    bad_rows_topic: str | None = None
    """The topic of `bad_rows="topic"`; None: the table's name and `-bad`."""
    bad_rows_max_ratio: Annotated[float, Meta(ge=0, le=1)] | None = None
    """The share of bad rows, 0 to 1, above which a queue stops, of its last 1,000 rows or more; None: 0.05."""
    evolution: Evolution = "fail"
    """What rows with columns that the table lacks do: stop the sink, or add the columns."""
    partition_by: Name | Sequence[Name] | None = ()
    """`"day"` or `"hour"` at which brokers stored the messages, in UTC; Delta has columns as well, and Iceberg columns
    and transforms of them. A tuple as soon as the options are made."""
    sort_by: Name | Sequence[Name] | None = ()
    """Columns by which the rows of each file are sorted; a tuple, too."""
    written_by: WrittenBy | None = None
    """What writes the files of Parquet and Delta tables; None: what the settings say."""
    on_offset_reset: OnOffsetReset = "fail"
    """What a queue does whose broker does not have what follows in the table: stand still, or begin anew."""
    compact_every: Seconds | None = None
    """Seconds after which small files are put together; None: by `rocketapp sink compact` alone."""
    target_file_size: Count = TARGET_FILE_SIZE
    """Bytes of the files that a compaction makes, at most."""
    url: str | None = field(default=None, repr=False)
    """For `format="sql"`: the database, as SQLAlchemy takes it; None: `lake.database` of the settings."""
    merge_on: Name | Sequence[Name] | None = ()
    """For `format="sql"`: columns of a unique key; a row replaces the one with the same values."""

    def __post_init__(self) -> None:
        for name in ("partition_by", "sort_by", "merge_on"):
            setattr(self, name, _names(getattr(self, name)))


def _names(given: Any) -> Any:
    """One, several or none as a tuple; what is neither is left to the check."""
    if given is None or isinstance(given, str):
        return () if given is None else (given,)
    return tuple(given) if isinstance(given, Iterable) else given


P = ParamSpec("P")
Declared = Callable[[Transform], Transform]


def _typed(options: Callable[P, SinkOptions]) -> Callable[Concatenate[RocketApp, str | Sequence[str], P], Declared]:
    def sink(app: RocketApp, topic: str | Sequence[str], /, *args: P.args, **options: P.kwargs) -> Declared:
        declare: Callable[..., Declared] = app.sink  # type: ignore[attr-defined]
        return declare(topic, *args, **options)

    return sink


sink = _typed(SinkOptions)
"""`app.sink(topic, ...)` for type checkers, which do not know the methods that plugins add: the topic lands in a table,
each message once. Several topics have a sink each, in tables of their own where `{topic}` stands in `table`, or in one.

What it returns is a decorator for a function that takes each batch as a pyarrow.Table, in a thread, and returns the
one to store, or None for nothing; it may be left alone. Raises SetupError for what cannot work.
"""
