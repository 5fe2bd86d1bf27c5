"""`rocketapp plugins`: which plugins there are, in which order, what they take part in, and which are disabled."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from rocketapp.cli.completing import apps
from rocketapp.cli.failure import DONE, USAGE, CommandError, one_line
from rocketapp.cli.options import json_option
from rocketapp.cli.output import print_json, say

if TYPE_CHECKING:
    from rocketapp.config.app import AppConfig
    from rocketapp.hooks.finding import Found


@dataclass(frozen=True, slots=True)
class ShownPlugin:
    """One plugin as the command shows it."""

    name: str
    order: int | None
    """From 1, outermost last; None when it is disabled or failed."""
    origin: str
    distribution: str
    version: str
    module: str
    hooks: tuple[str, ...]
    disabled: bool
    error: str
    """Why it cannot be used; empty when it can."""


@click.command("plugins", short_help="Show the plugins in their order.", epilog="Example: rocketapp plugins app:app")
@click.argument("app", required=False, shell_complete=apps)
@click.option("--settings", metavar="FILE", help="Default: settings.toml, if there is one.")
@json_option
@click.option("--traceback", is_flag=True, help="Show the whole traceback of what went wrong.")
def command(*, app: str | None, settings: str | None, as_json: bool, traceback: bool) -> int:
    """Show the plugins in their order: of APP, or without it those that are installed or named by the settings."""
    try:
        shown = _of_app(app, settings) if app is not None else _without_app(settings)
    except CommandError as error:
        error.traceback = traceback
        raise
    if as_json:
        print_json([asdict(one) for one in shown])
    else:
        for line in describe_plugins(shown):
            say(line)
    return USAGE if any(one.error for one in shown) else DONE


def describe_plugins(shown: Sequence[ShownPlugin]) -> Iterator[str]:
    """One line for each, and its hooks below it."""
    for one in shown:
        place = "-" if one.order is None else str(one.order)
        version = f"{one.distribution} {one.version}".strip() or one.module
        yield f"{place:>2}  {one.name}  ({version}; {one.origin}){'  disabled' if one.disabled else ''}"
        if one.error:
            yield f"      FAILED: {one.error}"
        elif not one.disabled:
            yield f"      {', '.join(one.hooks)}"


def _of_app(target: str, file: str | None) -> list[ShownPlugin]:
    from rocketapp.app.declare.phases import declared_of
    from rocketapp.app.settings.sources import load_settings
    from rocketapp.cli.loader import load_app
    from rocketapp.errors import RocketAppError

    declared = declared_of(load_app(target))
    try:
        # The plugins' own tables are not read: a plugin that fails has to be shown, not to end the command.
        code, place = declared.settings, declared.place
        config = load_settings(file, {}, os.environ, code, only_known=True, code_place=place).app
        return _shown(declared.found_plugins(config), config)
    except RocketAppError as error:
        raise CommandError(str(error)) from error


def _without_app(file: str | None) -> list[ShownPlugin]:
    from rocketapp.cli.loader import put_current_directory_on_path
    from rocketapp.cli.settings import read_settings
    from rocketapp.errors import RocketAppError
    from rocketapp.hooks.finding import find

    put_current_directory_on_path()
    config = read_settings({}, file=file).app
    try:
        return _shown(find((), config.plugins), config)
    except RocketAppError as error:
        raise CommandError(str(error)) from error


def _shown(found: Sequence[Found], config: AppConfig) -> list[ShownPlugin]:
    """Those that are used in their order, then those that failed, then the disabled ones."""
    from rocketapp.errors import PluginError
    from rocketapp.hooks.finding import choose
    from rocketapp.hooks.manager import Plugins

    plugins, used, failed = Plugins(), list[ShownPlugin](), list[ShownPlugin]()
    wanted = choose(found, config)
    for one in wanted:
        try:
            plugins.add(one)
        except PluginError as error:
            failed.append(_described(one, error=one_line(error.problem)))
        else:
            used.append(_described(one, order=len(used) + 1, hooks=plugins.hooks_of(one.name)))
    chosen = {one.name for one in wanted}
    return used + failed + [_described(one, disabled=True) for one in found if one.name not in chosen]


def _described(
    found: Found, *, order: int | None = None, hooks: tuple[str, ...] = (), disabled: bool = False, error: str = ""
) -> ShownPlugin:
    name, version = _distribution(found)
    return ShownPlugin(found.name, order, found.origin, name, version, found.module, hooks, disabled, error)


def _distribution(found: Found) -> tuple[str, str]:
    """Name and version of what installed the plugin; empty for a module that nothing installed."""
    from importlib.metadata import packages_distributions, version

    if found.distribution is not None:
        return found.distribution.name, found.distribution.version
    names = packages_distributions().get(found.module.partition(".")[0])
    return (names[0], version(names[0])) if names else ("", "")
