"""The terminal: a line for whatever happens, with the seconds since the beginning."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

SHOWN = ("rocketapp.lake", "rocketapp.spark")
"""Those whose every line is shown."""


class Screen:
    """Shows what it is told, the log of the sink, and the warnings of rocketapp. All of the log goes into a file."""

    def __init__(self, log: Path) -> None:
        self._began = time.monotonic()
        logger = logging.getLogger("rocketapp")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        file = logging.FileHandler(log)
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        shown = _Shown(self)
        shown.addFilter(lambda record: record.levelno >= logging.WARNING or record.name in SHOWN)
        for handler in (file, shown):
            logger.addHandler(handler)

    def say(self, text: str) -> None:
        print(self._line(text), flush=True)

    def problem(self, text: str) -> None:
        print(self._line(text), file=sys.stderr, flush=True)

    def _line(self, text: str) -> str:
        return f"{time.monotonic() - self._began:6.1f} s  {text}"


class _Shown(logging.Handler):
    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.say(record.getMessage())
