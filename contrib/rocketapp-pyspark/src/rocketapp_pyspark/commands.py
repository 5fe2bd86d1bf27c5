"""`rocketapp sink show`: where a sink stands, read from its table."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import click

from rocketapp_pyspark.parquet import LOG, STAGING, ParquetStore
from rocketapp_pyspark.records import Commit


@click.group()
def command() -> None:
    """Look at the tables of sinks."""


@command.command()
@click.argument("table", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--name", default=None, help="One sink; without it, all sinks of the table.")
@click.option("--commits", default=0, show_default=True, help="How many of the newest commits to show as well.")
def show(table: Path, name: str | None, commits: int) -> None:
    """Where the sinks of a Parquet directory stand: newest commit, and the next offset of each queue."""
    logs = sorted((table / LOG).iterdir()) if (table / LOG).is_dir() else []
    names = [unquote(directory.name) for directory in logs]
    if not names or (name is not None and name not in names):
        wanted = "a sink" if name is None else f"a sink named {name}"
        known = f": it has {', '.join(names)}" if names else ""
        raise click.UsageError(f"{table} is not the table of {wanted}{known}")
    for one in names if name is None else [name]:
        _show(one, list(ParquetStore.log_of(table, one)), commits)
    staged = len(list((table / STAGING).iterdir())) if (table / STAGING).is_dir() else 0
    click.echo(f"staged and not published: {staged} batches")


def _show(name: str, found: list[Commit], commits: int) -> None:
    newest = found[-1]
    rows = sum(commit.rows for commit in found)
    click.echo(f"{name}: commit {newest.sequence} at {_time(newest)}, {rows} rows")
    for lane, position in sorted(newest.vector.items()):
        click.echo(f"  {lane}  next #{position}")
    for commit in found[-commits:] if commits else ():
        spans = ", ".join(f"{lane} #{span.start}-#{span.end - 1}" for lane, span in sorted(commit.spans.items()))
        click.echo(f"  commit {commit.sequence} at {_time(commit)}: {commit.rows} rows of {spans}")


def _time(commit: Commit) -> str:
    return datetime.fromtimestamp(commit.made_at, UTC).isoformat(timespec="seconds")
