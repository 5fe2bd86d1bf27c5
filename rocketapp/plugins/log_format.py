"""How log lines look: one line of text, or one JSON object per line.

A log call may carry `extra={"fields": {...}}`: facts beside the sentence. JSON writes
them as members of their own; text leaves them out where the sentence tells them.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

_SENTENCES = frozenset({"rocketapp.messages", "rocketapp.states"})
"""Loggers whose sentences tell all of their fields."""


_OWN, _OF_HANDLERS = "rocketapp.", "rocketapp.handlers."


def make_formatter(kind: str, *, process: str = "") -> logging.Formatter:
    """`kind` is `app.log_format`; `process` names a worker or a broker in each line."""
    return JsonFormatter(process) if kind == "json" else TextFormatter(process)


class TextFormatter(logging.Formatter):
    """Time, level, sentence: for a person who watches. Times are local.

    Before the sentence stands the logger, unless it is one of rocketapp's own, whose sentences say what they are about.
    """

    def __init__(self, process: str = "") -> None:
        label = f"[{process}] ".replace("%", "%%") if process else ""
        before = f"%(asctime)s %(levelname)-7s {label}"
        super().__init__(f"{before}%(message)s")
        self._named = logging.PercentStyle(f"{before}%(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as logging calls it
        is_own = record.name.startswith(_OWN) and not record.name.startswith(_OF_HANDLERS)
        return super().formatMessage(record) if is_own else self._named.format(record)

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        fields = _fields(record)
        if "message_id" not in fields or record.name in _SENTENCES:
            return text
        # A line of the user's own: which message it was about is not in the sentence.
        return f"{text} [{fields.get('topic')} {fields.get('message_id')} attempt {fields.get('attempt')}]"


class JsonFormatter(logging.Formatter):
    """time (UTC), level, logger, message, process, the call's fields, and the exception if any."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if process := self._process or _process_of(record):
            line["process"] = process
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # A lone surrogate has no UTF-8; other values that JSON does not know are shown as they print.
        return msgspec.json.encode(_clean(line), enc_hook=str).decode()


def _process_of(record: logging.LogRecord) -> str:
    """A worker or a broker that `--log-config` set up is named by its records."""
    name = record.processName or ""
    return "" if name == "MainProcess" else name


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {str(_clean(key)): _clean(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(member) for member in value]
    return value
