"""The command `rocketapp`: which commands there are, and how they end.

A command's module, with the rooms that it needs, is imported when the command is
called: `rocketapp run` is measured from the process's start to the first message.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketapp.cli.failure import DONE, FAILED, USAGE, CommandError, describe, exit_code, print_failure
from rocketapp.cli.output import flush
from rocketapp.cli.runtime import collect_rarely, open_streams
from rocketapp.errors import RocketAppError, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS = {
    "run": ("run:command", "Consume messages with APP until a signal."),
    "new": ("new:command", "Make a project in DIR, with tests that pass."),
    "broker": ("broker:command", "Run the embedded broker alone."),
    "send": ("send:command", "Send BODY to TOPIC."),
    "tail": ("messages:tail_command", "Show the messages of TOPIC as they come."),
    "routes": ("app:routes_command", "Show what APP subscribes, and how failures go."),
    "config": ("app:config_command", "Show every setting of APP, and where its value comes from."),
    "docs": ("docs:command", "Describe APP as an AsyncAPI 3 document."),
    "check": ("check:command", "Compare APP with the members of its groups."),
    "doctor": ("doctor:command", "Say why APP stands still, and what mends it."),
    "plugins": ("app:plugins_command", "Show the plugins, and what stands around each handler."),
    "topic": ("admin:topic_commands", "Show and create topics."),
    "group": ("admin:group_commands", "Show consumer groups and their members."),
    "offset": ("admin:offset_commands", "Show and reset the offsets of a group."),
    "dlq": ("dlq:command", "Show dead letters, try them, and replay them."),
    "message": ("messages:message_command", "Show messages by their id or a key."),
}
"""Name of a command -> module of `rocketapp.cli.commands` and what is the command there, and its help: in a list of
all commands none is imported."""
PLUGIN_COMMANDS = "rocketapp.commands"
"""The group of entry points by which plugins add click commands.

It is a group of its own so that nothing of a plugin is imported before its command is called: help stays fast, and a
plugin that cannot be loaded breaks its own command alone.
"""
_HELP = frozenset({"-h", "--help", "--version"})


class LazyGroup(click.Group):
    """Imports a command's module when the command is asked for, be it ours or a plugin's."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return _load_command(cmd_name)
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(f"rocketapp.cli.commands.{module}"), name)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            known = [*COMMANDS, *(one for one, _ in _plugin_commands())]
            raise click.UsageError(f"No such command {name!r}{did_you_mean(name, known)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, rows in (
            ("Commands", [(name, text) for name, (_, text) in COMMANDS.items()]),
            ("Commands of plugins", _plugin_commands()),
        ):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _plugin_commands() -> list[tuple[str, str]]:
    """The name of each, and which distribution brings it. Ours win over others of the same name."""
    from rocketapp.hooks.finding import installed

    found = sorted(installed(PLUGIN_COMMANDS), key=lambda point: point.name)
    return [(point.name, f"from {_distribution(point)}") for point in found if point.name not in COMMANDS]


def _load_command(name: str) -> click.Command | None:
    """The command; None when no plugin has it. Raises CommandError that names the plugin."""
    from rocketapp.hooks.finding import installed

    found = list(installed(PLUGIN_COMMANDS).select(name=name))
    if not found:
        return None
    if len(found) > 1:
        brought = " and ".join(sorted(map(_distribution, found)))
        raise CommandError(f"command {name}: {brought} both bring it: remove one of them")
    (point,) = found
    who = f"command {name} of {_distribution(point)} ({point.value})"
    try:
        command = point.load()
    except (Exception, SystemExit) as error:
        raise CommandError(f"{who} could not be loaded: {describe(error)}") from error
    if not isinstance(command, click.Command):
        raise CommandError(f"{who} is {command!r}, not a click command")
    return command


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.module


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rocketapp", message="%(prog)s %(version)s")
def cli() -> None:
    """Flask for RocketMQ message handlers."""


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit with 0 (done), 1 (failed or cut) or 2 (wrong usage or configuration)."""
    code = FAILED
    collect_rarely()
    with contextlib.suppress(KeyboardInterrupt):  # outside of the command itself
        if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # while this was imported
            signal.signal(signal.SIGINT, signal.default_int_handler)
        _open_standard_streams()
        code = run_command(arguments)
    from rocketapp.cli.processes.stop import leave

    leave(code)


def _open_standard_streams() -> None:
    """Open the standard streams that the parent process closed.

    A socket that got the number of one would be written to in its place.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Takes the lowest number that is free: this one. Children have it as well.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    open_streams()


def run_command(arguments: list[str] | None = None) -> int:
    """The exit code of one command line; what went wrong is one line on stderr, with `--json` one JSON object."""
    words = sys.argv[1:] if arguments is None else arguments
    fail = functools.partial(print_failure, as_json=has("--json", words), traceback=has("--traceback", words))
    code = _run(words, fail)
    try:
        flush()
    except CommandError as error:  # a full disk behind stdout
        fail(str(error))
        return code or FAILED
    return code


def has(option: str, words: Sequence[str]) -> bool:
    """Whether this is among the options: also of a command line that is wrong and cannot be read to its end."""
    return option in words[: words.index("--") if "--" in words else None]


def _run(words: Sequence[str], fail: Callable[..., None]) -> int:
    try:
        Path.cwd()
    except OSError as error:
        text = f"the current directory cannot be read ({error.strerror}): change to one that exists"
        fail(text, code=USAGE)
        return USAGE
    try:
        code = cli.main(args=list(words), prog_name="rocketapp", standalone_mode=False)
    except (RocketAppError, click.ClickException, click.Abort, KeyboardInterrupt) as error:
        return _explain(error, fail)
    except OSError as error:
        fail(describe(error))
        return FAILED
    except SystemExit:
        # So click ends when the reader of its help is gone; and when a shell was answered.
        if _HELP.isdisjoint(words):
            raise
        return DONE
    except (ImportError, AttributeError) as error:
        if not (mend := _mend_of_import(error)):
            raise
        fail(f"{describe(error)}{mend}", error, code=USAGE)
        return USAGE
    return code if isinstance(code, int) else DONE


def _explain(error: BaseException, fail: Callable[..., None]) -> int:
    """Say what went wrong, and return the exit code for it."""
    if isinstance(error, RocketAppError):
        code = exit_code(error)
        text = f"{error}{_mend_of_import(error.__cause__)}"
        fail(text, error.__cause__ if isinstance(error, CommandError) else error, code=code)
        return code
    if type(error).__name__ == "NoArgsIsHelpError":  # older clicks have none
        assert isinstance(error, click.ClickException)
        click.echo(error.format_message(), err=True)
        return USAGE
    if isinstance(error, click.ClickException):
        # Of an option without its value click does not say which command it belongs to.
        see = f": see {error.ctx.command_path} --help" if isinstance(error, click.UsageError) and error.ctx else ""
        fail(f"{error.format_message().rstrip('.')}{_mend(error)}{see}", code=USAGE)
        return USAGE
    return FAILED


def _mend_of_import(error: BaseException | None) -> str:
    """Of one that may have got a file of the user's in the place of a module of Python itself."""
    from rocketapp.cli.loader import hiding_files

    hiding = hiding_files(sys.stdlib_module_names) if isinstance(error, ImportError | AttributeError) else ""
    return f": {hiding}" if hiding else ""


def _mend(error: click.ClickException) -> str:
    """A body may begin with a dash, but then it looks like an option."""
    is_option = isinstance(error, click.NoSuchOption) and not error.possibilities
    if is_option and isinstance(error, click.UsageError) and error.ctx and error.ctx.command.name == "send":
        return "; a body that begins with - needs -- before it"
    return ""
