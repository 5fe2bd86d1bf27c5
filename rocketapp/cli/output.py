"""What commands print on stdout. A reader that goes away, as `| head` does, ends no command: its exit code stays."""

from __future__ import annotations

import json
import sys
from typing import Any

import click

from rocketapp.cli.failure import FAILED, CommandError, discard_stdout


def say(text: str, *, flush: bool = False, colour: bool = False) -> None:
    """Print one line, or several. `colour`: with its colours, also where stdout is not a terminal."""
    try:
        if colour:
            click.echo(text, color=True)
        else:
            print(text, flush=flush)
    except BrokenPipeError:
        discard_stdout()
    except OSError as error:
        raise _unwritten(error) from error


def _unwritten(error: OSError) -> CommandError:
    """For stdout that leads to a full disk. What is buffered is dropped, or it would fail again at the end."""
    discard_stdout()
    problem = (error.strerror or str(error)).lower()
    return CommandError(f"stdout cannot be written: {problem}: see where it is redirected to", FAILED)


def print_json(document: Any) -> None:
    """One document on several lines."""
    say(json.dumps(document, indent=2, ensure_ascii=needs_ascii()))


def needs_ascii() -> bool:
    """Whether stdout cannot hold every letter as it is."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") != "utf8"


def open_streams() -> None:
    """Make stdout and stderr streams that take every text, also where they were closed from the beginning."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115 - for as long as the process lives
        else:
            stream.reconfigure(errors="backslashreplace")


def flush() -> None:
    """Write what is buffered. Raises CommandError when it cannot be written, but not for a reader that is gone."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        discard_stdout()
    except OSError as error:
        raise _unwritten(error) from error
