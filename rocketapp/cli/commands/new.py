"""`rocketapp new`: a project that runs and passes its own tests at once; and later, what its template has learnt."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import click

from rocketapp.cli.failure import DONE, FAILED, CommandError, shown_path
from rocketapp.cli.options import refuse_empty
from rocketapp.cli.output import say

TEMPLATES = ("app", "plugin", "pipeline")


@click.command("new", epilog="Example: rocketapp new shop --defaults")
@click.argument("directory", metavar="DIR", type=click.Path())
@click.option("--template", type=click.Choice(TEMPLATES), help="What to make; default: app.")
@click.option("--defaults", is_flag=True, help="Ask nothing: the names come from DIR.")
@click.option("--update", is_flag=True, help="Bring a project in DIR to this rocketapp's version of its template.")
def command(*, directory: str, template: str | None, defaults: bool, update: bool) -> int:
    """Make a project in DIR, with tests that pass."""
    from rocketapp.cli.source import require

    refuse_empty({"DIR": directory}, is_needed=True)
    folder = Path(directory)
    require("rocketapp new", "copier", "new")
    if update:
        if template is not None:
            raise CommandError("--update follows the template that the project was made of: leave --template out")
        return _update(folder)
    return _make(folder, template or TEMPLATES[0], defaults=defaults)


def _make(folder: Path, template: str, *, defaults: bool) -> int:
    from rocketapp.cli.source import running
    from rocketapp.cli.templates import make

    if not defaults and not sys.stdin.isatty():
        raise CommandError("stdin is not a terminal that could be asked: give --defaults")
    used = running()
    make(folder, template, used, defaults=defaults)
    say(f"made {shown_path(str(folder))} of the template {template}; rocketapp comes from {used.line()}")
    say(f"next: cd {shlex.quote(str(folder))} && make test && make run")
    return DONE


def _update(folder: Path) -> int:
    from rocketapp.cli.templates import update

    conflicts = update(folder)
    shown = shown_path(str(folder))
    if conflicts is None:
        say(f"{shown} follows this version of its template already")
        return DONE
    if conflicts:
        raise CommandError(
            f"{shown}: conflicts in {', '.join(conflicts)}: solve them as after a merge, then commit", FAILED
        )
    say(f"updated {shown}: look at it with git diff, run its tests, then commit")
    return DONE
