"""Where the sinks of a table stand, read from the table alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import click

from rocketapp_lake.lanes import Vector
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.parquet_log import LOG
from rocketapp_lake.records import Commit
from rocketapp_lake.staging import STAGING

if TYPE_CHECKING:
    from rocketapp_lake.sql_loading import Database

DELTA_LOG = "_delta_log"


@dataclass(frozen=True, slots=True)
class Shown:
    """One sink."""

    name: str
    sequence: int
    vector: Vector
    commits: Sequence[Commit]
    """Oldest first, as far as the table knows them."""


def shown(table: str, name: str | None) -> list[Shown]:
    """The sinks of a table that are meant. Raises UsageError when it has none, or not this one."""
    path = Path(table)
    found = _iceberg(table) if is_iceberg(table) else _delta(table, name) if is_delta(table) else _parquet(path)
    return meant(table, found, name)


def meant(table: str, found: Sequence[Shown], name: str | None) -> list[Shown]:
    """Those of this name, or all. Raises UsageError without any."""
    names = [one.name for one in found]
    if not names or (name is not None and name not in names):
        wanted = "a sink" if name is None else f"a sink named {name}"
        known = f": it has {', '.join(names)}" if names else ", or has no commit yet"
        raise click.UsageError(f"{table} is not the table of {wanted}{known}")
    return [one for one in found if name in (None, one.name)]


def is_delta(table: str) -> bool:
    return "://" in table or (Path(table) / DELTA_LOG).is_dir()


def is_iceberg(table: str) -> bool:
    """Whether it is `catalog.namespace.table`, and not a directory."""
    return table.count(".") >= 2 and "/" not in table and not Path(table).exists()


def left_over(table: str) -> int | None:
    """Batches that were staged and not published; None when that cannot be told."""
    path = Path(table)
    if not path.is_dir():
        return None
    return len(list((path / STAGING).iterdir())) if (path / STAGING).is_dir() else 0


def _of(commits: Sequence[Commit]) -> Shown:
    newest = commits[-1]
    return Shown(newest.sink, newest.sequence, newest.vector, commits)


def _parquet(path: Path) -> list[Shown]:
    logs = sorted((path / LOG).iterdir()) if (path / LOG).is_dir() else []
    return [_of(list(ParquetStore.log_of(path, unquote(directory.name)))) for directory in logs]


def _delta(table: str, name: str | None) -> list[Shown]:
    """Those that the history of the table names, and this one."""
    from rocketapp_lake.delta import DeltaStore

    commits: dict[str, list[Commit]] = {} if name is None else {name: []}
    for commit in DeltaStore(table, "").commits():
        commits.setdefault(commit.sink, []).append(commit)
    found = []
    for sink, own in sorted(commits.items()):
        head = DeltaStore(table, sink, is_set_back=True).load()
        if head.sequence:
            found.append(Shown(sink, head.sequence, head.vector, own[::-1]))
    return found


def _iceberg(name: str) -> list[Shown]:
    try:
        from pyiceberg.exceptions import NoSuchTableError

        from rocketapp_lake.iceberg import catalog_of, commits_of, newest_of
    except ImportError:
        raise click.UsageError(f"{name} is a table of a catalog: pip install 'rocketapp[lake]'") from None
    catalog, table_name = catalog_of(name)
    try:
        table = catalog().load_table(table_name)
    except (NoSuchTableError, ValueError) as error:
        raise click.UsageError(f"{name}: {error}") from None
    commits: dict[str, list[Commit]] = {}
    for commit in commits_of(table):
        commits.setdefault(commit.sink, []).append(commit)
    return [
        Shown(sink, newest.sequence, newest.vector, commits.get(sink, [newest])[::-1])
        for sink, newest in newest_of(table).items()
    ]


URL = "ROCKETAPP_LAKE__DATABASE"
"""The variable of the environment with the url of the database: others see the arguments of a command."""


def database_of(table: str, url: str | None) -> Database | None:
    """The database that a command means; None for a table of files. Raises UsageError for a url that cannot be used."""
    if url is None and not is_iceberg(table) and "/" not in table and not Path(table).exists():
        url = os.environ.get(URL)
    if url is None:
        return None
    try:
        from rocketapp_lake.sql_loading import Database
    except ImportError:
        raise click.UsageError(f"{table} is a table of a database: pip install 'rocketapp[lake]'") from None
    return Database(url)


def shown_in_database(table: str, database: Database) -> Sequence[Shown]:
    """The sinks of a table."""
    from rocketapp_lake.sql import SqlStore

    stores = [SqlStore(table, name, database) for name in SqlStore(table, "", database).sinks()]
    return [_of(commits) for commits in (store.log() for store in stores) if commits]
