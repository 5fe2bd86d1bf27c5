"""Options that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import click

from rocketapp.cli.failure import DONE, FAILED, CommandError
from rocketapp.model.numbers import MOST_SECONDS

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])
_OVERRIDES = {
    "name_server": ("client", "name_server"),
    "embedded": ("broker", "dir"),
    "dir": ("broker", "dir"),
    "listen": ("broker", "listen"),
    "broker_http": ("broker", "http"),
    "register": ("broker", "name_server"),
    **{name: ("app", name) for name in ("http", "log_format", "log_level", "workers")},
    **{name: ("app", name) for name in ("connect_timeout", "drain_timeout")},
}
"""Parameter of a command -> the setting that it overrides."""


def overrides_of(given: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The settings that the options of a command override, by table."""
    found: dict[str, dict[str, Any]] = {}
    for name, (table, key) in _OVERRIDES.items():
        if given.get(name) is not None:
            found.setdefault(table, {})[key] = given[name]
    return found


_KEPT = "rocketapp.settings"
"""Where the context of a command has what its options say of settings."""


def _keep(context: click.Context, option: click.Parameter, value: str | None) -> None:
    refuse_empty({option.opts[0]: value})
    context.meta.setdefault(_KEPT, {})[option.name] = value


def command_settings(app: RocketApp | None = None, *, code: Mapping[str, Any] | None = None) -> Settings:
    """The settings for this command: of the current folder or --settings, overridden by its options.

    With an app also those given in its code. `code`: see `read_settings`.
    """
    from rocketapp.cli.settings import read_settings

    given = click.get_current_context().meta.get(_KEPT, {})
    return read_settings(overrides_of(given), file=given.get("settings"), app=app, code=code)


class Decorator(Protocol):
    """Gives a command one more option."""

    def __call__(self, command: F, /) -> F: ...


def about_settings(*names: str, **more: Any) -> Decorator:
    """An option that overrides a setting through `command_settings`; the command itself does not receive it."""
    return click.option(*names, expose_value=False, callback=_keep, **more)


settings_option: Decorator = about_settings(
    "--settings", metavar="FILE", help="Default: settings.toml, if there is one."
)
name_server_option: Decorator = about_settings(
    "--name-server", metavar="H:P[;H:P]", help="The cluster. Default: the settings', or this folder's embedded broker."
)
traceback_option: Decorator = click.option(
    "--traceback", is_flag=True, expose_value=False, help="Show the whole traceback of what went wrong."
)
"""It is for `run_command`, as --json is for what goes wrong."""
json_option: Decorator = click.option("--json", "as_json", is_flag=True, help="One JSON document.")
json_lines_option: Decorator = click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
"""For a command that prints as long as there is something to print."""


SILENT = "rocketapp.silent"
"""Set in the context of a command that went without a broker."""


def connection_options(command: F) -> F:
    """Adds --name-server and --settings to a command that calls `command_settings`."""
    return name_server_option(settings_option(command))


def cluster_options(command: F) -> F:
    """--json, and for `ask_cluster` --name-server and --settings.

    A command that shows a part of the cluster alone, because brokers are silent, fails.
    """

    @functools.wraps(command)
    def told(**options: Any) -> int:
        code: int = command(**options)
        return FAILED if code == DONE and SILENT in click.get_current_context().meta else code

    return connection_options(json_option(cast(F, told)))


def app_command(command: F) -> F:
    """APP, --settings and --traceback, for a command about an app. It is called with the app and its settings."""

    @functools.wraps(command)
    def load_and_call(*, app: str, **options: Any) -> int:
        from rocketapp.cli.loader import load_app

        loaded = load_app(app)
        code: int = command(app=loaded, settings=command_settings(loaded), **options)
        return code

    return click.argument("app")(settings_option(traceback_option(cast(F, load_and_call))))


def app_named() -> str:
    """The APP argument as the user typed it."""
    named: str = click.get_current_context().params["app"]
    return named


def refuse_empty(given: Mapping[str, str | None], *, is_needed: bool = False) -> None:
    """Refuse empty values: an unset shell variable would silently select the default.

    `is_needed`: the command does not run without it.
    """
    mend = "give it a value" if is_needed else "leave it out, or give it a value"
    for option, value in given.items():
        if value is not None and not value.strip(" ;"):
            raise CommandError(f"{option} is empty: {mend}")


if TYPE_CHECKING:
    _Text = click.ParamType[str]
else:
    _Text = click.ParamType  # of older clicks it takes no argument


class _Name(_Text):
    """A topic or group name that RocketMQ allows: a broker has no clear error for others."""

    def __init__(self, name: str) -> None:
        self.name = name

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from rocketapp.model.names import RESERVED_GROUPS, group_problem, topic_problem

        text = str(value)
        # Of RocketMQ's own groups there is something to see, although an app may not use them.
        problem = topic_problem(text) if self.name == "topic" or text in RESERVED_GROUPS else group_problem(text)
        if problem is not None:
            self.fail(problem, param, ctx)
        return text


TOPIC, GROUP = _Name("topic"), _Name("group")


class Seconds(click.FloatRange):
    """A number of seconds, 0 or more."""

    def __init__(self) -> None:
        super().__init__(min=0.0)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds: float = super().convert(value, param, ctx)
        if not seconds <= MOST_SECONDS:
            self.fail(f"{seconds} is not a number up to {MOST_SECONDS}.", param, ctx)
        return seconds
