"""Which line is the user's own: in a traceback, and in the frames of a running thread.

The one place that tells the user's files from those of this package, of installed packages and of the standard
library. It is asked for a failure, a declaration or a blocked loop, never for a message that succeeds.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import FrameType, TracebackType
from typing import NamedTuple

from rocketapp.model.subscription import Subscription

_OURS = f"{Path(__file__).parent}{os.sep}"
_STANDARD = tuple({f"{Path(file).parent}{os.sep}" for file in (os.__file__, os.path.realpath(os.__file__))})
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_ASYNCIO = tuple(f"{standard}asyncio{os.sep}" for standard in _STANDARD)
_LOOP_CALLS = ("_run", "_run_once", "run_forever", "run_until_complete", "run")
"""Functions of asyncio by which a loop, or a program that runs a loop, calls callbacks."""
_TYPED_IN = ("<string>", "<stdin>")
"""What `python -c` and the interactive interpreter call the user's code."""
_log = logging.getLogger("rocketapp.failures")


class UserLine(NamedTuple):
    """One line of the user's code."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.line}"


def line_of_error(error: BaseException, home: str = "") -> UserLine | None:
    """The innermost line of the user's that the exception came through, or None.

    `home`: the file of a handler, which is the user's even where it is installed. A SyntaxError is where it says.
    """
    if isinstance(error, SyntaxError) and error.filename and not is_foreign(error.filename):
        return UserLine(error.filename, error.lineno or 0)
    found, at = None, error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        if code.co_filename == home or _is_users(at.tb_frame):
            found = UserLine(code.co_filename, at.tb_lineno, code.co_qualname)
        at = at.tb_next
    return found


def line_of_frame(frame: FrameType | None, home: str = "") -> UserLine | None:
    """The innermost line of the user's that leads to this frame and that the event loop has called, or None."""
    while frame is not None:
        code = frame.f_code
        if code.co_filename == home or _is_users(frame):
            return UserLine(code.co_filename, frame.f_lineno, code.co_qualname)
        if code.co_filename.startswith(_ASYNCIO) and code.co_name in _LOOP_CALLS:
            return None  # frames beyond are those of the program that started the loop
        frame = frame.f_back
    return None


def stack_of_frame(frame: FrameType | None, home: str = "", *, most: int = 8) -> str:
    """The user's lines that lead to this frame, outermost first: `charge app.py:12`; and the frame itself unless ours.

    Of a deep recursion the innermost `most` lines. Empty when none of them is the user's.
    """
    lines: list[str] = []
    at, is_first, is_users = frame, True, False
    while at is not None and not (at.f_code.co_filename.startswith(_ASYNCIO) and at.f_code.co_name in _LOOP_CALLS):
        is_theirs = at.f_code.co_filename == home or _is_users(at)
        is_users |= is_theirs
        is_shown = is_theirs or (is_first and not at.f_code.co_filename.startswith(_OURS))
        if is_shown and len(lines) < most:
            lines.append(f"{at.f_code.co_name} {Path(at.f_code.co_filename).name}:{at.f_lineno}")
        at, is_first = at.f_back, False
    return ", ".join(reversed(lines)) if is_users else ""


def calling_frame(frame: FrameType) -> FrameType:
    """The frame outside rocketapp.app, its clients for scripts, the kit and the standard library that led to this one.

    Installed packages count as callers: an app may be one, and what it declares is the user's wherever it lies.
    """
    while frame.f_back is not None and _is_between(frame):
        frame = frame.f_back
    return frame


def place_of_frame(frame: FrameType | None, home: str) -> str:
    """`file:line` of `line_of_frame`, or ""."""
    return str(line_of_frame(frame, home) or "")


def place_of_error(error: BaseException, home: str) -> str:
    """`file:line` of `line_of_error`, or ""."""
    return str(line_of_error(error, home) or "")


def log_traceback(error: BaseException, subscription: Subscription) -> None:
    """The whole traceback at DEBUG, as the user's frames alone do not show what a library met."""
    if _log.isEnabledFor(logging.DEBUG):
        traceback: TracebackType | None = error.__traceback__
        _log.debug("%s failed", subscription.handler_name, exc_info=(type(error), error, traceback))


def file_of(subscription: Subscription) -> str:
    """The file that a subscription's handler is written in."""
    return subscription.place.rpartition(":")[0]


def is_foreign(filename: str) -> bool:
    """Whether a file belongs to this package, an installed one or the standard library, or is not a file."""
    if filename.startswith("<"):
        return filename not in _TYPED_IN
    return filename.startswith((_OURS, *_STANDARD)) or _is_installed(filename)


def _is_users(frame: FrameType) -> bool:
    """Also of code that was typed in; a dataclass's own methods have its file name, and belong to their module.

    Those of a named tuple have it too, and belong to none.
    """
    filename = frame.f_code.co_filename
    if filename in _TYPED_IN:
        filename = frame.f_globals.get("__file__") or filename
    return not (is_foreign(filename) or frame.f_globals.get("__name__", "").startswith("namedtuple_"))


def _is_between(frame: FrameType) -> bool:
    """Of ours, or of what runs our coroutine for the user: `asyncio.run(app.publish(...))`."""
    filename = frame.f_code.co_filename
    is_standard = filename.startswith(("<frozen ", *_STANDARD)) and not _is_installed(filename)
    ours = ("rocketapp.app.", "rocketapp.scripts.", "rocketapp.testing.")
    return is_standard or frame.f_globals.get("__name__", "").startswith(ours)


def _is_installed(filename: str) -> bool:
    return any(part in filename for part in _INSTALLED)
