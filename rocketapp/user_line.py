"""Where in the user's code an exception was raised, or a thread stands: never asked for a message that succeeds."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from types import FrameType, TracebackType

from rocketapp.model.subscription import Subscription

_OURS = f"{Path(__file__).parent}{os.sep}"
_STANDARD = f"{Path(os.__file__).parent}{os.sep}"
_INSTALLED = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_ASYNCIO = f"{_STANDARD}asyncio{os.sep}"
_LOOP_CALLS = ("_run", "_run_once", "run_forever", "run_until_complete", "run")
"""Functions of asyncio by which a loop, or a program that runs a loop, calls callbacks."""
_log = logging.getLogger("rocketapp.failures")


def place_of_error(error: BaseException, home: str) -> str:
    """`file:line` of the innermost frame of the user's code, or "" when no frame is theirs.

    `home`: the handler's own file, which is the user's wherever it is installed.
    """
    found, at = "", error.__traceback__
    while at is not None:
        filename = at.tb_frame.f_code.co_filename
        if filename == home or not is_foreign(filename):
            found = f"{Path(filename).name}:{at.tb_lineno}"
        at = at.tb_next
    return found


def place_of_frame(frame: FrameType | None, home: str) -> str:
    """`file:line` of the innermost frame of the user's code that the event loop has called; "" when there is none."""
    while frame is not None:
        filename = frame.f_code.co_filename
        if filename == home or not is_foreign(filename):
            return f"{Path(filename).name}:{frame.f_lineno}"
        if filename.startswith(_ASYNCIO) and frame.f_code.co_name in _LOOP_CALLS:
            return ""  # frames beyond are those of the program that started the loop
        frame = frame.f_back
    return ""


def log_traceback(error: BaseException, subscription: Subscription) -> None:
    """The whole traceback at DEBUG, as the user's frames alone do not show what a library met."""
    if _log.isEnabledFor(logging.DEBUG):
        traceback: TracebackType | None = error.__traceback__
        _log.debug("%s failed", subscription.handler_name, exc_info=(type(error), error, traceback))


def file_of(subscription: Subscription) -> str:
    """The file that a subscription's handler is written in."""
    return subscription.place.rpartition(":")[0]


def is_foreign(filename: str) -> bool:
    """Of this package, of an installed one, of the standard library, or of no file."""
    return filename.startswith((_OURS, "<frozen ")) or is_standard(filename) or _is_installed(filename)


def is_standard(filename: str) -> bool:
    """Of the standard library, in which some systems keep installed packages as well."""
    return filename.startswith(_STANDARD) and not _is_installed(filename)


def _is_installed(filename: str) -> bool:
    return any(part in filename for part in _INSTALLED)
