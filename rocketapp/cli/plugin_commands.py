"""Commands that plugins add: click commands, by entry points of the group `rocketapp.commands`.

They have a group of their own so that nothing of a plugin is imported before its command is called: help stays fast,
and a plugin that cannot be loaded breaks its own command alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from rocketapp.cli.failure import CommandError, describe
from rocketapp.hooks.installed import entry_points

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "rocketapp.commands"


def list_commands(ours: Collection[str]) -> list[tuple[str, str]]:
    """The name of each, and which distribution brings it. Ours win over others of the same name."""
    found = sorted(entry_points(GROUP), key=lambda point: point.name)
    return [(point.name, f"from {_distribution(point)}") for point in found if point.name not in ours]


def load_command(name: str) -> click.Command | None:
    """The command; None when no plugin has it. Raises CommandError that names the plugin."""
    found = list(entry_points(GROUP).select(name=name))
    if not found:
        return None
    if len(found) > 1:
        brought = " and ".join(sorted(map(_distribution, found)))
        raise CommandError(f"command {name}: {brought} both bring it: remove one of them")
    (point,) = found
    who = f"command {name} of {_distribution(point)} ({point.value})"
    try:
        command = point.load()
    except Exception as error:
        raise CommandError(f"{who} could not be loaded: {describe(error)}") from error
    if not isinstance(command, click.Command):
        raise CommandError(f"{who} is {command!r}, not a click command")
    return command


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module
