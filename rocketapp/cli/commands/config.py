"""`rocketapp config`: every setting with its value and where that came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.failure import DONE, CommandError
from rocketapp.cli.options import app_options, json_option
from rocketapp.cli.output import print_json, say

if TYPE_CHECKING:
    from rocketapp.app.settings.settings import Settings

HIDDEN = "********"


@click.command(
    "config", short_help="Show every setting of APP and its source.", epilog="Example: rocketapp config app:app"
)
@json_option
@app_options
def command(*, app: str, settings: str | None, traceback: bool, as_json: bool) -> int:
    """Show every setting of APP with its value, and where that came from."""
    from rocketapp.cli.loader import load_app
    from rocketapp.cli.settings import read_settings

    try:
        read = read_settings({}, file=settings, app=load_app(app))
    except CommandError as error:
        error.traceback = traceback
        raise
    if as_json:
        print_json(settings_as_json(read))
        return DONE
    for line in describe_settings(read):
        say(line)
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


def settings_as_json(settings: Settings) -> dict[str, dict[str, dict[str, Any]]]:
    """Table -> option -> value and source; secrets are not shown."""
    return {
        table: {
            one.name: {
                "value": HIDDEN if _is_hidden(one, getattr(options, one.name)) else _plain(getattr(options, one.name)),
                "source": settings.source_of(table, one.name),
            }
            for one in dataclasses.fields(options)
        }
        for table, options in settings.tables().items()
    }


def _plain(value: object) -> object:
    """As JSON has it; what JSON does not know is text."""
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return _without_password(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _without_password(value: str) -> str:
    """A URL without user and password, and without its query, which may hold a token; other texts as they are."""
    from rocketapp.transport.web import shown_url

    return shown_url(value) if "://" in value else value


def _is_hidden(field: dataclasses.Field[object], value: object) -> bool:
    from rocketapp.config.option import info_of

    return info_of(field).secret and bool(value)


def _shown(field: dataclasses.Field[object], value: object) -> str:
    if _is_hidden(field, value):
        return HIDDEN
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value)).replace("'", '"')
    return f'"{_without_password(value)}"' if isinstance(value, str) else str(value)
