"""Libraries that only some commands need, and that an extra brings."""

from __future__ import annotations

from rocketapp.cli.failure import CommandError
from rocketapp.cli.projects.source import running


def missing(what: str, library: str, extra: str) -> CommandError:
    """What to raise when `library` cannot be imported: the line names the extra and what installs it."""
    text = f"{what} needs {library}, which comes with the extra {extra!r}: {running().pip_command(extra)}"
    return CommandError(text)
