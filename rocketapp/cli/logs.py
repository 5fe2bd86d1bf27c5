"""Where log lines go: stderr. How they look is said by `plugins.log_format`."""

from __future__ import annotations

import logging
import sys

from rocketapp.model.event import Event, LoopFailed
from rocketapp.plugins.log_context import MessageFilter
from rocketapp.plugins.log_format import make_formatter


def set_up_logging(log_format: str, level: str, *, process: str = "") -> None:
    """Send the root logger to stderr; `process` names a worker or a broker in each line."""
    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(MessageFilter())
    handler.setFormatter(make_formatter(log_format, process=process))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    # Debug lines of the event loop say nothing about messages.
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def log_failure(event: Event) -> None:
    """Log that a task of the command itself failed: an app's tasks are told to its plugins instead."""
    if isinstance(event, LoopFailed):
        logging.getLogger("rocketapp.run").error("%s failed: %s", event.loop, event.error)
