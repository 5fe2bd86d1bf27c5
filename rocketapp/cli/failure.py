"""How a command fails: one line on stderr that names the place and the mend, and an exit code.

The codes are the whole vocabulary: 0 done or cleanly drained, 1 failed or the drain
was cut, 2 wrong usage or configuration.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rocketapp.errors import RocketAppError, safe_text

DONE, FAILED, USAGE = 0, 1, 2
LONGEST_LINE = 600
"""Characters of an error line: an exception's text may carry a whole document."""


class CommandError(RocketAppError):
    """The command fails: with this line on stderr and this exit code."""

    def __init__(self, text: str, code: int = USAGE) -> None:
        super().__init__(text, code)
        self.text: str = text
        self.code: int = code

    def __str__(self) -> str:
        return self.text


def exit_code(error: RocketAppError) -> int:
    """The exit code of a command that ends with this error."""
    return error.code if isinstance(error, CommandError) else USAGE


def one_line(text: str) -> str:
    """The text on one line, cut when it is very long."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 3] + "..."


def describe(error: BaseException) -> str:
    """`ValueError: the text`, in one line."""
    text = one_line(safe_text(error))
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def problem_of(error: OSError) -> str:
    """The message of the operating system, for the middle of a sentence."""
    return (error.strerror or str(error)).lower()


def shown_path(file: str) -> str:
    """The path relative to the current directory if it lies inside, which is easier to read and to click."""
    path = Path(file)
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except (ValueError, OSError):
        return str(path)


def user_place(error: BaseException) -> str | None:
    """`file:line` of the user's own code that raised; None when none of it is theirs."""
    from rocketapp.user_line import line_of_error

    found = line_of_error(error)
    return None if found is None else f"{shown_path(found.file)}:{found.line}"


def discard_stdout() -> None:
    """The reader has closed the pipe, as `| head` does: drop what is not written yet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_failure(
    text: str, error: BaseException | None = None, *, traceback: bool = False, code: int = FAILED, as_json: bool = False
) -> None:
    """The one line on stderr; before it the whole traceback when that was asked for.

    `as_json`: one object with `error` and `exit_code`, and with `traceback` when that was asked for.
    """
    trace = ""
    if traceback and error is not None:
        import traceback as traces

        trace = "".join(traces.format_exception(error))
    line = one_line(_with_short_paths(text))
    if as_json:
        import json

        told: dict[str, object] = {"error": line, "exit_code": code}
        print(json.dumps({**told, "traceback": trace} if trace else told), file=sys.stderr, flush=True)
    else:
        print(f"{trace}rocketapp: {line}", file=sys.stderr, flush=True)


def _with_short_paths(text: str) -> str:
    """Files below the current directory are easier to read and to click without it."""
    try:
        here = str(Path.cwd())
    except OSError:  # deleted meanwhile
        return text
    return text if here == os.sep else text.replace(here + os.sep, "")
