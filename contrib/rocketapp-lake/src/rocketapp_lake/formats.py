"""What `format=` may say, and what makes the store of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec

from rocketapp_lake.columns import as_tables_have
from rocketapp_lake.declared import LONGEST_NAME, Sink
from rocketapp_lake.errors import SinkError
from rocketapp_lake.options import ONLY
from rocketapp_lake.settings import LakeConfig, storage_of
from rocketapp_lake.store import Store
from rocketapp_lake.writing import TIMES, BatchWriter, by_arrow


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of table."""

    new_store: Callable[[Sink, LakeConfig, BatchWriter | None], Store]
    """As an app starts; nothing is read or written before the store is used. The last argument writes its files; None:
    Arrow. Raises ValueError and SinkError for what cannot work."""
    problems: Callable[[Sink], Iterable[str]]
    """Why a sink cannot have its table. Asked where the sink is declared."""
    compaction: str = ""
    """For a format without compaction: what does it instead."""
    library: str | None = None
    """What it needs beside the distribution: an extra of rocketapp, `lake`, brings it along."""


def parquet(sink: Sink, settings: LakeConfig, writer: BatchWriter | None) -> Store:
    from rocketapp_lake.parquet import ParquetStore

    make = by_arrow if writer is None else writer.write
    # A store that an operator looks at completes nothing.
    write = None if sink.is_set_back else make(*sink.arranged_by)
    return ParquetStore(sink.directory, sink.name, write=write)


def delta(sink: Sink, settings: LakeConfig, writer: BatchWriter | None) -> Store:
    from rocketapp_lake.delta import DeltaStore

    columns = sink.columns()
    return DeltaStore(
        sink.directory,
        sink.name,
        *sink.arranged_by,
        declared=None if columns is None else as_tables_have(columns.schema.empty_table()).schema,
        storage=storage_of(settings),
        append=None if writer is None else writer.append_to_delta(),
        is_set_back=sink.is_set_back,
    )


def iceberg(sink: Sink, settings: LakeConfig, writer: BatchWriter | None) -> Store:
    from rocketapp_lake.iceberg import IcebergStore, catalog_of

    return IcebergStore(*catalog_of(sink.table), sink.name, *sink.arranged_by, is_set_back=sink.is_set_back)


def sql(sink: Sink, settings: LakeConfig, writer: BatchWriter | None) -> Store:
    from rocketapp_lake.sql import SqlStore
    from rocketapp_lake.sql_loading import Database

    url = sink.url or settings.database
    if not url:
        raise SinkError("format='sql' has no database: give url=, or lake.database in the settings")
    return SqlStore(sink.table, sink.name, Database(url), merge_on=sink.merge_on or ())


def path_problems(sink: Sink) -> Iterator[str]:
    if "://" in sink.table:
        yield f"table={sink.table!r}: give a path on a local or network file system, or format='delta'"
    by, _ = sink.arranged_by
    if by and (len(by) > 1 or by[0] not in TIMES):
        yield f"partition_by={by[0]!r}: format='parquet' has 'day' or 'hour', format='delta' columns as well"


OBJECT_STORES = ("s3", "s3a", "abfs", "abfss", "az", "gs")
"""Where deltalake reaches Delta tables, beside directories."""


def url_problems(sink: Sink) -> Iterator[str]:
    scheme, found, rest = sink.table.partition("://")
    if found and (scheme not in OBJECT_STORES or not rest.strip("/")):
        yield f"table={sink.table!r}: give a path, or the URL of one of {', '.join(OBJECT_STORES)}"
    for transform in (one for one in sink.arranged_by[0] if "(" in one):
        yield f"partition_by={transform!r}: format='delta' has columns, 'day' and 'hour'"


def name_problems(sink: Sink) -> Iterator[str]:
    if sink.table.count(".") < 2 or not all(sink.table.split(".")):
        yield f"table={sink.table!r}: give catalog.namespace.table, with a catalog that pyiceberg knows"
    from rocketapp_lake.iceberg import partition_of

    try:
        for one in sink.arranged_by[0]:
            partition_of(one)
    except ValueError as error:
        yield str(error)


def sql_problems(sink: Sink) -> Iterator[str]:
    parts = sink.table.split(".")
    if len(parts) > 2 or not all(parts):
        yield f"table={sink.table!r}: give the name of a table, with or without its schema: shop.orders"
    for part, most in ((parts[-1], 128), (sink.name, LONGEST_NAME)):
        if len(part) > most:
            yield f"{part!r} is too long"


FORMATS: Mapping[str, Format] = {
    "parquet": Format(
        new_store=parquet,
        problems=path_problems,
        compaction="larger batches make larger files, and format='delta' puts small ones together",
    ),
    "delta": Format(new_store=delta, problems=url_problems),
    "iceberg": Format(
        new_store=iceberg,
        problems=name_problems,
        compaction="pyiceberg has none: Spark's procedure rewrite_data_files puts files together, beside running apps",
        library="pyiceberg",
    ),
    "sql": Format(
        new_store=sql,
        problems=sql_problems,
        compaction="a database sees to its files itself, as PostgreSQL by VACUUM",
        library="sqlalchemy",
    ),
}


def library_problems(name: str) -> Iterator[str]:
    """What this format needs and is not installed."""
    library = FORMATS[name].library
    if library is not None and find_spec(library) is None:
        yield f"format={name!r} needs {library}: pip install 'rocketapp[lake]'"


def format_problems(sink: Sink) -> Iterator[str]:
    """Why its format cannot be, or cannot have what the options say, and what is wrong with the schema."""
    name = sink.format
    yield from library_problems(name)
    for option, formats in ONLY.items():
        if getattr(sink, option) not in (None, ()) and name not in formats:
            yield f"{option}= is for {' or '.join(f'format={one!r}' for one in formats)}"
    if sink.compact_every is not None and FORMATS[name].compaction:
        yield f"compact_every= does nothing with format={name!r}: {FORMATS[name].compaction}"
    yield from FORMATS[name].problems(sink)
    try:
        sink.columns()
    except TypeError as error:
        yield f"schema={sink.schema!r}: {error}"
