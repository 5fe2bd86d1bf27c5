"""What `format=` may say, and what makes the store of each."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

from rocketapp_lake.errors import SinkError
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.staging import Write
from rocketapp_lake.store import Store
from rocketapp_lake.writing import BatchWriter, by_arrow

PartitionBy = Literal["day", "hour"]
WrittenBy = Literal["spark", "arrow"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableOptions:
    """What a sink says about its table."""

    table: str | os.PathLike[str]
    """Its place, as the user wrote it."""
    sink: str
    """The name of the sink: positions belong to it."""
    folder: str | os.PathLike[str] = ""
    """Where the program was when it declared the sink: a relative `table` that is a directory lies below it."""
    partition_by: PartitionBy | None = None
    """Rows are kept apart by the time at which brokers stored them, in UTC."""
    sort_by: tuple[str, ...] = ()
    """Columns by which the rows of a file are sorted."""
    storage: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    """Options of the object store that the table is in, as its library has them; secrets are among them."""
    database: str = dataclasses.field(default="", repr=False)
    """The url of the database that the settings name."""
    options: Any = None
    """The format's own options, an object of the class that the format names."""


class NewStore(Protocol):
    """Makes the store of one sink, as its app starts; nothing is read or written before the store is used."""

    def __call__(self, about: TableOptions, writer: BatchWriter | None) -> Store:
        """`writer`: what writes its files; None: Arrow."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One kind of table."""

    new_store: NewStore
    options: type[Any] | None = None
    """A dataclass of the keywords that `app.sink` takes for this format; its constructor raises ValueError."""
    problem: Callable[[TableOptions], str | None] = lambda about: None
    """Why a sink cannot have this table; None when it can. Asked where the sink is declared."""
    is_sorted: bool = False
    """Its store minds `sort_by`; otherwise that is refused."""
    compaction: str = "the format has none"
    """For a store without compaction: what does it instead."""
    written_by: Callable[[TableOptions, str], str] = lambda about, default: "arrow"
    """What writes the table; `default`: what the settings say."""

    @property
    def keywords(self) -> list[str]:
        """Those of `app.sink` that count for this format alone."""
        return [] if self.options is None else [field.name for field in dataclasses.fields(self.options)]

    def make_options(self, given: Mapping[str, Any], others: Iterable[str]) -> Any:
        """The options of one sink. Raises ValueError for an unknown keyword, a missing one, or a wrong value.

        `others`: the keywords that sinks of all formats take.
        """
        fields = () if self.options is None else dataclasses.fields(self.options)
        names = self.keywords
        for name in given:
            if name not in names:
                raise ValueError(_refused(name, [*names, *others]))
        for field in fields:
            if field.name not in given and field.default is MISSING and field.default_factory is MISSING:
                raise ValueError(f"{field.name}= is missing")
        return None if self.options is None else self.options(**given)


def _refused(name: str, names: Sequence[str]) -> str:
    """What is wrong with a keyword that is not one of `names`."""
    homes = [f"format={format!r}" for format, one in known().items() if name in one.keywords]
    if homes:
        return f"{name}= is for {' or '.join(homes)}"
    near = difflib.get_close_matches(name, names, n=1)
    return f"{name}= is unknown{f': {near[0]}= is meant?' if near else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileOptions:
    """Keywords of the formats whose tables are Parquet files."""

    written_by: WrittenBy | None = None
    """What writes the files; None: what the settings say."""

    def __post_init__(self) -> None:
        if self.written_by not in (None, *get_args(WrittenBy)):
            raise ValueError(f"written_by={self.written_by!r}: give {' or '.join(map(repr, get_args(WrittenBy)))}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetOptions(FileOptions):
    """Keywords of `format="parquet"`."""

    staging: str | os.PathLike[str] | None = None
    """Where files are written before their commit; None: a hidden directory of the table."""

    def __post_init__(self) -> None:
        FileOptions.__post_init__(self)  # with slots, super() is not of this class
        staging: object = self.staging
        if staging is not None and (not isinstance(staging, str | os.PathLike) or not os.fspath(staging)):
            raise ValueError(f"staging={staging!r}: give a directory, or None")


def _write(about: TableOptions, writer: BatchWriter | None) -> Write:
    make = by_arrow if writer is None else writer.write
    return make(about.partition_by, about.sort_by)


def _written_by(about: TableOptions, default: str) -> str:
    return str(about.options.written_by or default)


def parquet(about: TableOptions, writer: BatchWriter | None) -> Store:
    write = _write(about, writer)
    staging = about.options.staging and Path(about.folder, about.options.staging)
    table = Path(about.folder, about.table)
    return ParquetStore(table, about.sink, write=write, staging=staging)


def delta(about: TableOptions, writer: BatchWriter | None) -> Store:
    from rocketapp_lake.delta import DeltaStore

    if writer is not None:
        raise ValueError("written_by='spark': not with format='delta'")
    place = os.fspath(about.table)
    return DeltaStore(
        place if "://" in place else Path(about.folder, place),
        about.sink,
        partition_by=about.partition_by,
        sort_by=about.sort_by,
        storage=about.storage,
    )


def iceberg(about: TableOptions, writer: BatchWriter | None) -> Store:
    from rocketapp_lake.iceberg import IcebergStore, catalog_of

    catalog, name = catalog_of(os.fspath(about.table))
    partition_by = () if about.partition_by is None else (about.partition_by,)
    return IcebergStore(catalog, name, about.sink, partition_by=partition_by, sort_by=about.sort_by)


def name_problem(about: TableOptions) -> str | None:
    if os.fspath(about.table).count(".") < 2 or not all(os.fspath(about.table).split(".")):
        return f"table={about.table!r}: give catalog.namespace.table, with a catalog that pyiceberg knows"
    return None


def path_problem(about: TableOptions) -> str | None:
    if "://" in os.fspath(about.table):
        return f"table={about.table!r}: give a path on a local or network file system, or format='delta'"
    return None


OBJECT_STORES = ("s3", "s3a", "abfs", "abfss", "az", "gs")
"""Where deltalake reaches Delta tables, beside directories."""


def delta_problem(about: TableOptions) -> str | None:
    scheme, found, rest = os.fspath(about.table).partition("://")
    if found and (scheme not in OBJECT_STORES or not rest.strip("/")):
        return f"table={about.table!r}: give a path, or the URL of one of {', '.join(OBJECT_STORES)}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlOptions:
    """What `app.sink` takes for `format="sql"`."""

    url: str | None = dataclasses.field(default=None, repr=False)
    """As SQLAlchemy takes it; None: that of the settings."""
    merge_on: str | Sequence[str] = ()
    """Columns of a unique key: a row replaces the one with the same values."""

    def __post_init__(self) -> None:
        if self.url is not None and (not isinstance(self.url, str) or "://" not in self.url):
            raise ValueError("url= is a text as postgresql+psycopg://user@127.0.0.1/shop")
        if not all(isinstance(name, str) and name for name in self.keys):
            raise ValueError(f"merge_on={self.merge_on!r}: give names of columns")

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns of `merge_on`."""
        return (self.merge_on,) if isinstance(self.merge_on, str) else tuple(self.merge_on)


def sql(about: TableOptions, writer: BatchWriter | None) -> Store:
    from rocketapp_lake.sql import SqlStore
    from rocketapp_lake.sql_loading import Database

    url = about.options.url or about.database
    if not url:
        raise SinkError("format='sql' has no database: give url=, or lake.database in the settings")
    return SqlStore(os.fspath(about.table), about.sink, Database(url), merge_on=about.options.keys)


def sql_problem(about: TableOptions) -> str | None:
    if about.partition_by is not None:
        return f"partition_by={about.partition_by!r}: a table of a database has the partitions that it was created with"
    parts = os.fspath(about.table).split(".")
    if len(parts) > 2 or not all(parts):
        return f"table={about.table!r}: give the name of a table, with or without its schema: shop.orders"
    return next(
        (f"{part!r} is too long" for part, most in ((parts[-1], 128), (about.sink, 200)) if len(part) > most), None
    )


BUILT_IN: dict[str, Format] = {
    "parquet": Format(
        new_store=parquet,
        options=ParquetOptions,
        problem=path_problem,
        is_sorted=True,
        written_by=_written_by,
        compaction="larger batches make larger files, and format='delta' puts small ones together",
    ),
    "delta": Format(
        new_store=delta, options=FileOptions, problem=delta_problem, is_sorted=True, written_by=_written_by
    ),
    "iceberg": Format(
        new_store=iceberg,
        problem=name_problem,
        is_sorted=True,
        compaction="pyiceberg has none: Spark's procedure rewrite_data_files puts files together, beside running apps",
    ),
    "sql": Format(
        new_store=sql,
        options=SqlOptions,
        problem=sql_problem,
        compaction="a database sees to its files itself, as PostgreSQL by VACUUM",
    ),
}
EXTRAS = {"iceberg": ("pyiceberg", "lake"), "sql": ("sqlalchemy", "lake")}
"""The library of a format, and the extra of rocketapp that brings it along."""
_registered: dict[str, Format] = {}


def register_format(name: str, new_store: NewStore, *, options: type[Any] | None = None) -> None:
    """Make `format=name` known to every sink of this process. Raises ValueError for a name that is taken.

    `options`: a dataclass of the keywords that `app.sink` takes for it; `about.options` is an object of it. Its
    `__post_init__` may raise ValueError.
    """
    if name in BUILT_IN or (name in _registered and _registered[name].new_store is not new_store):
        raise ValueError(f"format {name!r} is known already: give yours another name")
    _registered[name] = Format(new_store=new_store, options=options)


def known() -> dict[str, Format]:
    """By name, those of other packages included."""
    return {**BUILT_IN, **_registered}


def missing(format: str) -> str | None:
    """What a format needs and is not installed, and how it is; None when nothing is missing."""
    library, extra = EXTRAS.get(format, (None, ""))
    return None if library is None or find_spec(library) is not None else f"{library}: pip install 'rocketapp[{extra}]'"
