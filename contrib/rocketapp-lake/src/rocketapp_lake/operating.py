"""`rocketapp sink compact` and `rebase`: what an operator does to the table of a sink, beside running apps."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from rocketapp_lake.formats import BUILT_IN
from rocketapp_lake.lanes import Lane
from rocketapp_lake.options import TARGET_FILE_SIZE
from rocketapp_lake.rebasing import lane_from
from rocketapp_lake.rebasing import rebase as set_positions
from rocketapp_lake.showing import is_delta, is_iceberg, shown, stores_of
from rocketapp_lake.store import Compacts

MIB = 1024 * 1024
TABLE = click.argument("table")
URL = click.option("--url", help="The database of the table; without it, that of ROCKETAPP_LAKE__DATABASE.")
NAME = click.option("--name", default=None, help="One sink; without it, all sinks of the table.")


@click.command()
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
    if not is_iceberg(table) and not is_delta(table) and not Path(table).is_dir():
        of_database = BUILT_IN["sql"].compaction
        raise click.UsageError(f"{table} is not a directory; if it is a table of a database, {of_database}")
    open_store = stores_of(table)
    for one in (sink.name for sink in shown(table, open_store, name)):
        store = open_store(table, one)
        if not isinstance(store, Compacts):
            format = "iceberg" if is_iceberg(table) else "parquet"
            raise click.UsageError(f"{table} has format={format!r}: {BUILT_IN[format].compaction}")
        done = store.compact(target_file_size * MIB)
        if done.before:
            click.echo(f"{one}: {done.before} files are {done.after} now, of {done.bytes} bytes")
        else:
            click.echo(f"{one}: nothing to put together")


@click.command()
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
    for path, one in ((f"{table}_bad", f"{sink}/bad"), (table, sink)):
        store = open_store(path, one)
        head = store.load()
        if not head.sequence:
            continue  # bad rows have no table of their own
        click.echo(f"{one}:")
        for lane, offset in sorted(to.items()):
            has = f"#{head.vector[lane]}" if lane in head.vector else "not known"
            click.echo(f"  {lane}  {has} -> #{offset}")
        if not dry_run:
            set_to = set_positions(store, one, to, made_at=now)
            click.echo(f"  commit {set_to.sequence}")
    if dry_run:
        click.echo("nothing was changed: --dry-run")


def _positions(given: tuple[str, ...]) -> dict[Lane, int]:
    found = {}
    for text in given:
        queue, _, offset = text.rpartition("=")
        if not offset.isdigit():
            raise click.BadParameter(f"{text!r}: write QUEUE=OFFSET, as orders@broker-a:0=5000", param_hint="--to")
        try:
            lane, number = lane_from(queue), int(offset)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--to") from None
        if lane in found or number >= 2**63:
            why = f"{lane} is named twice" if lane in found else f"{lane}: no queue is as long as {offset[:20]}"
            raise click.BadParameter(why, param_hint="--to")
        found[lane] = number
    return found
