"""`rocketapp sink`: where a sink stands, read from its table, and what an operator does to it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from rocketapp import RocketAppError
from rocketapp_lake.operating import NAME, TABLE, URL, compact, rebase
from rocketapp_lake.records import Commit
from rocketapp_lake.showing import Shown, is_of_database, left_over, shown, stores_of


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


command.add_command(compact)
command.add_command(rebase)


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
    staged = left_over(table) if is_of_database(table, url) is None else None
    if staged is not None:
        click.echo(f"staged and not published: {staged} batches")


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
    for lane, position in sorted(sink.head.vector.items()):
        click.echo(f"  {lane}  next #{position}")
    for commit in sink.commits[-commits:] if commits else ():
        if commit.kind != "append":
            click.echo(f"  commit {commit.sequence} at {_time(commit)}: {KINDS[commit.kind]}")
            continue
        spans = ", ".join(f"{lane} #{span.start}-#{span.end - 1}" for lane, span in sorted(commit.spans.items()))
        click.echo(f"  commit {commit.sequence} at {_time(commit)}: {commit.rows} rows of {spans}")


def _time(commit: Commit) -> str:
    return datetime.fromtimestamp(commit.made_at, UTC).isoformat(timespec="seconds")
