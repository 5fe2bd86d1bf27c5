"""Where the sinks of a table stand, read from the table alone; and the store of each, to be looked after."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.records import Commit, Head
from rocketapp_lake.staging import STAGING
from rocketapp_lake.store import Kept

DELTA_LOG = "_delta_log"
URL = "ROCKETAPP_LAKE__DATABASE"
"""The variable of the environment with the url of the database: others see the arguments of a command."""
OpenStore = Callable[[str, str], Kept]
"""Opens the store of a sink: its table, and its name. It takes a table that was set back as it is."""


@dataclass(frozen=True, slots=True)
class Shown:
    """One sink."""

    name: str
    head: Head
    commits: Sequence[Commit]
    """Oldest first, as far as the table knows them."""


def is_delta(table: str) -> bool:
    return "://" in table or (Path(table) / DELTA_LOG).is_dir()


def is_iceberg(table: str) -> bool:
    """Whether it is `catalog.namespace.table`, and not a directory."""
    return table.count(".") >= 2 and "/" not in table and not Path(table).exists()


def is_of_database(table: str, url: str | None) -> str | None:
    """The url of its database; None for a table of files."""
    if url is None and not is_iceberg(table) and "/" not in table and not Path(table).exists():
        return os.environ.get(URL)
    return url


def stores_of(table: str, url: str | None = None) -> OpenStore:
    """Raises UsageError for a kind of table whose library is not installed, and for a url that cannot be used."""
    try:
        if (found := is_of_database(table, url)) is not None:
            from rocketapp_lake.sql import SqlStore
            from rocketapp_lake.sql_loading import Database

            database = Database(found)
            return lambda place, sink: SqlStore(place, sink, database)
        if is_iceberg(table):
            from rocketapp_lake.iceberg import IcebergStore, catalog_of

            return lambda place, sink: IcebergStore(*catalog_of(place), sink, is_set_back=True)
    except ImportError as error:
        raise click.UsageError(f"{table} needs {error.name}: pip install 'rocketapp[lake]'") from None
    if not is_delta(table):
        return ParquetStore
    from rocketapp_lake.delta import DeltaStore

    return lambda place, sink: DeltaStore(place, sink, is_set_back=True)


def shown(table: str, open_store: OpenStore, name: str | None) -> list[Shown]:
    """The sinks of a table that are meant. Raises UsageError when it has none, or not this one."""
    commits: dict[str, list[Commit]] = {} if name is None else {name: []}
    try:
        for commit in open_store(table, "").commits():
            commits.setdefault(commit.sink, []).append(commit)
        heads = {sink: open_store(table, sink).load() for sink in sorted(commits) if name in (None, sink)}
    except ValueError as error:
        raise click.UsageError(f"{table}: {error}") from None
    found = [Shown(sink, head, commits[sink][::-1]) for sink, head in heads.items() if head.sequence]
    if not found:
        wanted = "a sink" if name is None else f"a sink named {name}"
        names = sorted(sink for sink, own in commits.items() if own)
        known = f": it has {', '.join(names)}" if names else ", or has no commit yet"
        raise click.UsageError(f"{table} is not the table of {wanted}{known}")
    return found


def left_over(table: str) -> int | None:
    """Batches that were staged and not published; None when that cannot be told."""
    path = Path(table)
    if not path.is_dir():
        return None
    return len(list((path / STAGING).iterdir())) if (path / STAGING).is_dir() else 0
