"""Every command as Markdown, from click: how it is called, and its options."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from rocketapp.cli.main import COMMANDS, cli
from rocketapp_site.prose import cell, markdown


def leaves() -> dict[str, click.Context]:
    """Each command by the words behind `rocketapp`; of a group of commands, those in it."""
    root = click.Context(cli, info_name="rocketapp")
    return dict(pair for name in COMMANDS for pair in _leaves(root, name))


def usage_of(context: click.Context) -> str:
    """Usage, options and an example of one command."""
    usage = " ".join(context.command.get_usage(context).partition(": ")[2].split())
    example = (context.command.epilog or "").removeprefix("Example: ")
    options = [one for one in context.command.params if isinstance(one, click.Option)]
    rows = [_row(record) for option in options if (record := option.get_help_record(context))]
    parts = [f"```text\n{usage}\n```"]
    if rows:
        parts.append("\n".join(["| Option | Means |", "| --- | --- |", *rows]))
    if example:
        parts.append(f"```console\n$ {example}\n```")
    return "\n\n".join(parts)


def help_of(context: click.Context) -> str:
    """What the command says of itself: for one that the page says nothing of."""
    return markdown((context.command.help or "").replace("\b", ""))


def _row(record: tuple[str, str]) -> str:
    names, meaning = record
    meaning = re.sub(r"x>=([\d.]+?)(?:\.0)?(?=\D|$)", r"at least \1", meaning)
    meaning = re.sub(r"([\d.]+)<=x<=([\d.]+)", r"\1 to \2", meaning)
    return f"| `{names.replace('|', chr(92) + '|')}` | {cell(meaning)} |"


def _leaves(parent: click.Context, name: str) -> Iterator[tuple[str, click.Context]]:
    assert isinstance(parent.command, click.Group)
    command = parent.command.get_command(parent, name)
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent)
    if isinstance(command, click.Group):
        for one in command.commands:
            yield from _leaves(context, one)
    else:
        yield context.command_path.removeprefix("rocketapp "), context
