"""The command `rocketapp`: which commands there are, and how they end.

A command's module is imported when the command is called, and imports its rooms
inside its function: `rocketapp run` is measured from the process's start to the
first message.
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

import click

from rocketapp.cli.collector import collect_rarely
from rocketapp.cli.failure import DONE, FAILED, USAGE, CommandError, describe, print_failure
from rocketapp.cli.output import flush, open_streams
from rocketapp.errors import did_you_mean

COMMANDS = {
    "run": "rocketapp.cli.commands.run",
    "new": "rocketapp.cli.commands.new",
    "broker": "rocketapp.cli.commands.broker",
    "send": "rocketapp.cli.commands.send",
    "tail": "rocketapp.cli.commands.tail",
    "routes": "rocketapp.cli.commands.routes",
    "config": "rocketapp.cli.commands.config",
    "docs": "rocketapp.cli.commands.docs",
    "check": "rocketapp.cli.commands.check",
    "doctor": "rocketapp.cli.commands.doctor",
    "plugins": "rocketapp.cli.commands.plugins",
    "topic": "rocketapp.cli.commands.topic",
    "group": "rocketapp.cli.commands.group",
    "offset": "rocketapp.cli.commands.offset",
    "dlq": "rocketapp.cli.commands.dlq",
    "message": "rocketapp.cli.commands.message",
    "completion": "rocketapp.cli.commands.completion",
}
"""Name of a command -> module that holds it as `command`."""
_HELP = frozenset({"-h", "--help", "--version"})


class LazyGroup(click.Group):
    """Imports a command's module when the command is asked for, be it ours or a plugin's."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            from rocketapp.cli.plugin_commands import load_command

            return load_command(cmd_name)
        found: click.Command = importlib.import_module(COMMANDS[cmd_name]).command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, name) is None:
            from rocketapp.cli.plugin_commands import list_commands

            known = [*COMMANDS, *(one for one, _ in list_commands(COMMANDS))]
            raise click.UsageError(f"No such command {name!r}{did_you_mean(name, known)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from rocketapp.cli.plugin_commands import list_commands

        super().format_commands(ctx, formatter)
        if rows := list_commands(COMMANDS):
            with formatter.section("Commands of plugins"):
                formatter.write_dl(rows)


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
    from rocketapp.cli.processes.leaving import leave

    leave(code)


def _open_standard_streams() -> None:
    """Open the standard streams that the parent process closed.

    A socket that got the number of one would be written to in its place.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    open_streams()


def run_command(arguments: list[str] | None = None) -> int:
    """The exit code of one command line; what went wrong is one line on stderr, with `--json` one JSON object."""
    words = sys.argv[1:] if arguments is None else arguments
    fail = functools.partial(print_failure, as_json=asks_for_json(words))
    code = _run(words, fail)
    try:
        flush()
    except CommandError as error:  # a full disk behind stdout
        fail(str(error))
        return code or FAILED
    return code


def asks_for_json(words: Sequence[str]) -> bool:
    """Whether `--json` is among the options: also of a command line that is wrong and cannot be read to its end."""
    return "--json" in words[: words.index("--") if "--" in words else None]


def _run(words: Sequence[str], fail: Callable[..., None]) -> int:
    try:
        Path.cwd()
    except OSError as error:
        text = f"the current directory cannot be read ({error.strerror}): change to one that exists"
        fail(text, code=USAGE)
        return USAGE
    try:
        code = cli.main(args=list(words), prog_name="rocketapp", standalone_mode=False)
    except (CommandError, click.ClickException, click.Abort, KeyboardInterrupt) as error:
        return _explain(error, fail)
    except OSError as error:
        fail(describe(error))
        return FAILED
    except SystemExit:
        # So click ends when the reader of its help is gone; and when a shell was answered.
        if _HELP.isdisjoint(words):
            raise
        return DONE
    return code if isinstance(code, int) else DONE


def _explain(error: BaseException, fail: Callable[..., None]) -> int:
    """Say what went wrong, and return the exit code for it."""
    if isinstance(error, CommandError):
        fail(error.text, error.__cause__, traceback=error.traceback, code=error.code)
        return error.code
    if type(error).__name__ == "NoArgsIsHelpError":  # older clicks have none
        assert isinstance(error, click.ClickException)
        click.echo(error.format_message(), err=True)
        return USAGE
    if isinstance(error, click.ClickException):
        command = error.ctx.command_path if isinstance(error, click.UsageError) and error.ctx else "rocketapp"
        fail(f"{error.format_message().rstrip('.')}{_mend(error)}: see {command} --help", code=USAGE)
        return USAGE
    return FAILED


def _mend(error: click.ClickException) -> str:
    """A body may begin with a dash, but then it looks like an option."""
    is_option = isinstance(error, click.NoSuchOption) and not error.possibilities
    if is_option and isinstance(error, click.UsageError) and error.ctx and error.ctx.command.name == "send":
        return "; a body that begins with - needs -- before it"
    return ""
