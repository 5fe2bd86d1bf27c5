"""`rocketapp sink`: where the sinks of a table stand, read from the table alone, and what an operator does to it.

Both go on beside running apps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from rocketapp import MessageQueue, RocketAppError
from rocketapp_lake.committer import rebase as set_positions
from rocketapp_lake.declared import Sink
from rocketapp_lake.formats import FORMATS, library_problems
from rocketapp_lake.options import TARGET_FILE_SIZE, FormatName
from rocketapp_lake.records import Commit, Head
from rocketapp_lake.settings import LakeConfig
from rocketapp_lake.staging import STAGING
from rocketapp_lake.store import Store

DELTA_LOG = "_delta_log"
DATABASE = "ROCKETAPP_LAKE__DATABASE"
"""The variable of the environment with the url of the database: others see the arguments of a command."""
STORAGE = "ROCKETAPP_LAKE__STORAGE"
"""That with the options of object stores."""
OpenStore = Callable[[str, str], Store]
"""Opens the store of a sink: its table, and its name. It takes a table that was set back as it is."""
MIB = 1024 * 1024
TABLE = click.argument("table")
URL = click.option("--url", help="The database of the table; without it, that of ROCKETAPP_LAKE__DATABASE.")
NAME = click.option("--name", default=None, help="One sink; without it, all sinks of the table.")


class Told(click.Group):
    """What is wrong with a table is one line."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (RocketAppError, OSError) as error:
            raise click.ClickException(str(error)) from None


@click.group(cls=Told)
def command() -> None:
    """Look at the tables of sinks, and look after them."""


@command.command()
@TABLE
@NAME
@click.option(
    "--commits",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="How many of the newest commits to show as well.",
)
@URL
def show(*, table: str, name: str | None, commits: int, url: str | None) -> None:
    """Where the sinks of a table stand: newest commit, and the next offset of each queue.

    TABLE is the directory of a Parquet or Delta table, catalog.namespace.table of an Iceberg table, or the name of a
    table of a database.
    """
    for one in shown(table, stores_of(table, url), name):
        _show(one, commits)
    if format_of(table, url) != "sql" and Path(table).is_dir():
        click.echo(f"staged and not published: {len({one.stem for one in Path(table, STAGING).glob('*')})} batches")


KINDS = {
    "rebase": "positions were set",
    "epoch": "a queue began anew",
}


def _show(sink: Shown, commits: int) -> None:
    if not sink.commits:
        click.echo(f"{sink.name}: commit {sink.head.sequence}, older than the log of the table")
    else:
        newest, first = sink.commits[-1], sink.commits[0].sequence
        rows, since = sum(commit.rows for commit in sink.commits), "" if first == 1 else f" since commit {first}"
        click.echo(f"{sink.name}: commit {sink.head.sequence} at {_time(newest)}, {rows} rows{since}")
    for queue, position in sorted(sink.head.vector.items()):
        click.echo(f"  {queue}  next #{position}")
    for commit in sink.commits[-commits:] if commits else ():
        if commit.kind != "append":
            click.echo(f"  commit {commit.sequence} at {_time(commit)}: {KINDS[commit.kind]}")
            continue
        spans = ", ".join(f"{queue} #{span.start}-#{span.end - 1}" for queue, span in sorted(commit.spans.items()))
        click.echo(f"  commit {commit.sequence} at {_time(commit)}: {commit.rows} rows of {spans}")


def _time(commit: Commit) -> str:
    return datetime.fromtimestamp(commit.made_at, UTC).isoformat(timespec="seconds")


@command.command()
@TABLE
@NAME
@click.option(
    "--target-file-size",
    type=click.IntRange(min=1),
    default=TARGET_FILE_SIZE // MIB,
    show_default=True,
    help="Mebibytes of the new files, at most. Files of half of it stay as they are.",
)
def compact(table: str, name: str | None, target_file_size: int) -> None:
    """Put the small files of a Delta table together. Positions stay as they are."""
    format = format_of(table)
    if format in ("parquet", "sql") and not Path(table).is_dir():
        of_database = FORMATS["sql"].compaction
        raise click.UsageError(f"{table} is not a directory; if it is a table of a database, {of_database}")
    open_store = stores_of(table)
    for one in (sink.name for sink in shown(table, open_store, name)):
        if FORMATS[format].compaction:
            raise click.UsageError(f"{table} has format={format!r}: {FORMATS[format].compaction}")
        done = open_store(table, one).compact(target_file_size * MIB)
        if done.before:
            click.echo(f"{one}: {done.before} files are {done.after} now, of {done.bytes} bytes")
        else:
            click.echo(f"{one}: nothing to put together")


@command.command()
@TABLE
@NAME
@click.option(
    "--to",
    "positions",
    multiple=True,
    required=True,
    metavar="QUEUE=OFFSET",
    help="Where a queue goes on, as orders@broker-a:0=5000; may be repeated.",
)
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@URL
def rebase(*, table: str, name: str | None, positions: tuple[str, ...], dry_run: bool, url: str | None) -> None:
    """Set where queues of a sink go on, by a commit of its own; queues that are not named stay.

    Set back, messages are stored again; set forward, those between are left out. Running apps notice it.
    """
    to, open_store = _positions(positions), stores_of(table, url)
    names = [one.name for one in shown(table, open_store, name)]
    if len(names) > 1:
        raise click.UsageError(f"{table} has several sinks: say --name with one of {', '.join(names)}")
    (sink,), now = names, datetime.now(UTC).timestamp()
    owed = open_store(table, sink).load().aside
    for path, one in ((f"{table.rstrip('/')}_bad", f"{sink}/bad"), (table, sink)):
        store = open_store(path, one)
        head = store.load()
        if not head.sequence:
            continue  # bad rows have no table of their own
        click.echo(f"{one}:")
        # Those that are still to come into the table of bad rows keep it below them.
        left = {queue: [at for at in owed.get(queue, ()) if at >= head.vector.get(queue, 0)] for queue in to}
        set_to = {queue: min([offset, *left[queue]]) for queue, offset in to.items()}
        for queue, offset in sorted(set_to.items()):
            has = f"#{head.vector[queue]}" if queue in head.vector else "not known"
            click.echo(f"  {queue}  {has} -> #{offset}")
        if not dry_run:
            click.echo(f"  commit {set_positions(store, one, set_to, made_at=now).sequence}")
    if dry_run:
        click.echo("nothing was changed: --dry-run")


def _positions(given: tuple[str, ...]) -> dict[MessageQueue, int]:
    found = {}
    for text in given:
        name, _, offset = text.rpartition("=")
        if not offset.isdigit():
            raise click.BadParameter(f"{text!r}: write QUEUE=OFFSET, as orders@broker-a:0=5000", param_hint="--to")
        try:
            queue, number = queue_from(name), int(offset)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--to") from None
        if queue in found or number >= 2**63:
            why = f"{queue} is named twice" if queue in found else f"{queue}: no queue is as long as {offset[:20]}"
            raise click.BadParameter(why, param_hint="--to")
        found[queue] = number
    return found


def queue_from(text: str) -> MessageQueue:
    """The reverse of `str(queue)`: `orders@broker-a:0`. Raises ValueError for anything else."""
    topic, at, place = text.rpartition("@")
    broker, colon, queue = place.rpartition(":")
    if not (topic and at and broker and colon and queue.isdigit()):
        raise ValueError(f"{text!r} is not a queue: write topic@broker:queue, as `rocketapp sink show` does")
    return MessageQueue(topic, broker, int(queue))


# What a table is.


@dataclass(frozen=True, slots=True)
class Shown:
    """One sink."""

    name: str
    head: Head
    commits: Sequence[Commit]
    """Oldest first, as far as the table knows them."""


def format_of(table: str, url: str | None = None) -> FormatName:
    """What kind of table it is. A name is `catalog.namespace.table` of Iceberg, or of a database that is known."""
    if url is not None:
        return "sql"
    if "/" in table or Path(table).exists():
        return "delta" if "://" in table or (Path(table) / DELTA_LOG).is_dir() else "parquet"
    if table.count(".") >= 2:
        return "iceberg"
    return "sql" if os.environ.get(DATABASE) else "parquet"


def stores_of(table: str, url: str | None = None) -> OpenStore:
    """Raises UsageError for a kind of table whose library is not installed."""
    database = os.environ.get(DATABASE, "") if url is None else url
    told = (one.strip(" '\"") for one in os.environ.get(STORAGE, "").strip(" []").split(","))
    format, settings = format_of(table, url), LakeConfig(database=database, storage=tuple(filter(None, told)))

    def open_store(place: str, name: str) -> Store:
        sink = Sink(table=place, format=format, name=name, is_set_back=True)
        return FORMATS[format].new_store(sink, settings, None)

    for problem in library_problems(format):
        raise click.UsageError(problem)
    return open_store


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
