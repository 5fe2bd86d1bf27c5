"""`rocketapp sink compact` and `files`: what an operator does to the table of a sink. The app may run meanwhile."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import click

from rocketapp_pyspark.parquet import LOG, ParquetStore
from rocketapp_pyspark.store import TARGET_FILE_SIZE

MIB = 1024 * 1024
TABLE = click.argument("table", type=click.Path(exists=True, file_okay=False, path_type=Path))
NAME = click.option("--name", default=None, help="One sink; without it, all sinks of the table.")


def sinks_of(table: Path, name: str | None) -> list[str]:
    """The names of the sinks that are meant. Raises UsageError when the table has none, or not this one."""
    logs = sorted((table / LOG).iterdir()) if (table / LOG).is_dir() else []
    names = [unquote(directory.name) for directory in logs]
    if not names or (name is not None and name not in names):
        wanted = "a sink" if name is None else f"a sink named {name}"
        known = f": it has {', '.join(names)}" if names else ""
        raise click.UsageError(f"{table} is not the table of {wanted}{known}")
    return names if name is None else [name]


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
@click.option("--sort-by", multiple=True, metavar="COLUMN", help="Sort the rows of each new file; may be repeated.")
def compact(table: Path, name: str | None, target_file_size: int, sort_by: tuple[str, ...]) -> None:
    """Put the small files of a Parquet directory together. Positions stay as they are."""
    for one in sinks_of(table, name):
        done = ParquetStore(table, one, write=_never, sort_by=sort_by).compact(target_file_size * MIB)
        if done.before:
            click.echo(f"{one}: {done.before} files are {done.after} now, of {done.bytes} bytes")
        else:
            click.echo(f"{one}: nothing to put together")


@click.command()
@TABLE
@NAME
def files(table: Path, name: str | None) -> None:
    """The files of a Parquet directory that hold each row once, one a line, whatever runs meanwhile."""
    for one in sinks_of(table, name):
        for file in ParquetStore.files_of(table, one):
            click.echo(file)


def _never(rows: object, directory: Path) -> None:
    raise AssertionError(f"{directory}: the commands write nothing of their own")
