"""`rocketapp config`: every setting with its value and where that came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from rocketapp.cli.failure import DONE, CommandError
from rocketapp.cli.options import app_options

if TYPE_CHECKING:
    from rocketapp.app.settings.settings import Settings

HIDDEN = "********"


@click.command("config")
@app_options
def command(*, app: str, settings: str | None, traceback: bool) -> int:
    """Show every setting of APP with its value, and where that came from."""
    from rocketapp.cli.loader import load_app
    from rocketapp.cli.settings import read_settings

    try:
        read = read_settings({}, file=settings, app=load_app(app))
    except CommandError as error:
        error.traceback = traceback
        raise
    for line in describe_settings(read):
        print(line)
    return DONE


def describe_settings(settings: Settings) -> Iterator[str]:
    """`table.key = value  # source`, one a line; secrets are not shown."""
    rows = [
        (f"{table}.{one.name} = {_shown(one, getattr(options, one.name))}", settings.source_of(table, one.name))
        for table, options in settings.tables().items()
        for one in dataclasses.fields(options)
    ]
    width = max(len(left) for left, _ in rows)
    for left, source in rows:
        yield f"{left:<{width}}  # {source}"


def _shown(field: dataclasses.Field[object], value: object) -> str:
    from rocketapp.config.option import info_of

    if info_of(field).secret and value:
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value)).replace("'", '"')
    return f'"{value}"' if isinstance(value, str) else str(value)
