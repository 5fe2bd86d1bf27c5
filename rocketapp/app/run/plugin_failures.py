"""What plugins fail at while an app runs: each failure is one line, told once; its traceback is told at DEBUG."""

from __future__ import annotations

import logging
from pathlib import Path

from rocketapp.user_line import line_of_error

log: logging.Logger = logging.getLogger("rocketapp.app")
MOST = 256
"""Failures that are remembered. Further ones are told again and again rather than not at all."""


class PluginFailures:
    """Of the plugins of one app."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str, str, type[Exception]]] = set()

    def tell(self, who: str, doing: str, error: Exception) -> None:
        """`doing`: what the plugin was asked for, the same words each time."""
        place = _place(error)
        log.debug("%s failed at %s", who, doing, exc_info=error)
        failure = (who, doing, place, type(error))
        if failure in self._told:
            return
        if len(self._told) < MOST:
            self._told.add(failure)
        text = " ".join(f"{type(error).__name__}: {error}".split())
        log.error("%s: %s failed at %s: %s: further failures like this are not told", place, who, doing, text)


def _place(error: Exception) -> str:
    """The line in the plugin, which may be installed: then the innermost line of all."""
    if (found := line_of_error(error)) is not None:
        return str(found)
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "?" if at is None else f"{Path(at.tb_frame.f_code.co_filename).name}:{at.tb_lineno}"
