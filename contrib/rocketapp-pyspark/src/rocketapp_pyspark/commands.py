"""`rocketapp sink`: where a sink stands, read from its table, and what an operator does to it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from rocketapp_pyspark.operating import NAME, TABLE, compact, files, rebase, sinks_of
from rocketapp_pyspark.parquet import STAGING, ParquetStore
from rocketapp_pyspark.records import Commit


@click.group()
def command() -> None:
    """Look at the tables of sinks, and look after them."""


command.add_command(compact)
command.add_command(files)
command.add_command(rebase)


@command.command()
@TABLE
@NAME
@click.option("--commits", default=0, show_default=True, help="How many of the newest commits to show as well.")
def show(table: Path, name: str | None, commits: int) -> None:
    """Where the sinks of a Parquet directory stand: newest commit, and the next offset of each queue."""
    for one in sinks_of(table, name):
        _show(one, list(ParquetStore.log_of(table, one)), commits)
    staged = len(list((table / STAGING).iterdir())) if (table / STAGING).is_dir() else 0
    click.echo(f"staged and not published: {staged} batches")


KINDS = {
    "compact": "small files were put together",
    "rebase": "positions were set",
    "epoch": "a queue began anew",
}


def _show(name: str, found: list[Commit], commits: int) -> None:
    newest = found[-1]
    rows = sum(commit.rows for commit in found)
    click.echo(f"{name}: commit {newest.sequence} at {_time(newest)}, {rows} rows")
    for lane, position in sorted(newest.vector.items()):
        click.echo(f"  {lane}  next #{position}")
    for commit in found[-commits:] if commits else ():
        if commit.kind != "append":
            click.echo(f"  commit {commit.sequence} at {_time(commit)}: {KINDS[commit.kind]}")
            continue
        spans = ", ".join(f"{lane} #{span.start}-#{span.end - 1}" for lane, span in sorted(commit.spans.items()))
        click.echo(f"  commit {commit.sequence} at {_time(commit)}: {commit.rows} rows of {spans}")


def _time(commit: Commit) -> str:
    return datetime.fromtimestamp(commit.made_at, UTC).isoformat(timespec="seconds")
