"""Where log lines go and how they look: stderr, as text or as one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

_TEXT = "%(asctime)s %(levelname)s {process}%(message)s"


class JsonFormatter(logging.Formatter):
    """time, level, logger, message, and the exception when there is one."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        fields = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._process:
            fields["process"] = self._process
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=False, default=str)


def set_up_logging(log_format: str, level: str, *, process: str = "") -> None:
    """Send the root logger to stderr; `process` names a worker or a broker in each line."""
    handler = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        handler.setFormatter(JsonFormatter(process))
    else:
        label = f"[{process}] " if process else ""
        handler.setFormatter(logging.Formatter(_TEXT.format(process=label)))
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    # Debug lines of the event loop say nothing about messages.
    logging.getLogger("asyncio").setLevel(logging.WARNING)
