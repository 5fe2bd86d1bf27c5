"""How log lines look: one line of text, or one JSON object per line.

A log call may carry `extra={"fields": {...}}`: facts beside the sentence. JSON writes
them as members of their own; text leaves them out where the sentence tells them.

What messages, keys and exceptions say comes from strangers. It can neither begin a line
that looks like one of ours, nor move a terminal's cursor, nor fill a disk: control
characters are escaped, lines of a traceback are indented, and long texts are cut.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import lru_cache
from time import gmtime, localtime, strftime
from typing import Any

import msgspec

_SENTENCES = frozenset({"rocketapp.messages", "rocketapp.states"})
"""Loggers whose sentences tell all of their fields."""


_LONGEST, _LONGEST_TRACEBACK = 10_000, 50_000
"""Most characters of a sentence, and of a traceback."""
_UNPRINTABLE = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters but tabs, other ends of lines, and what turns the direction of writing."""

_OWN, _OF_HANDLERS = "rocketapp.", "rocketapp.handlers."


def make_formatter(kind: str, *, process: str = "") -> logging.Formatter:
    """`kind` is `app.log_format`; `process` names a worker or a broker in each line."""
    return JsonFormatter(process) if kind == "json" else TextFormatter(process)


@lru_cache(maxsize=1)
def _local(second: int) -> str:
    """The text of a second is made once, for all lines of the second."""
    return strftime("%Y-%m-%d %H:%M:%S,", localtime(second))


@lru_cache(maxsize=1)
def _utc(second: int) -> str:
    return strftime("%Y-%m-%dT%H:%M:%S.", gmtime(second))


def _time_of(record: logging.LogRecord, text_of: Callable[[int], str]) -> str:
    """When it was logged, with milliseconds."""
    second = int(record.created)
    return f"{text_of(second)}{int((record.created - second) * 1000):03d}"


class TextFormatter(logging.Formatter):
    """Time, level, sentence: for a person who watches. Times are local.

    Before the sentence stands the logger, unless it is one of rocketapp's own, whose sentences say what they are about.
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = f"[{process}] " if process else ""

    def format(self, record: logging.LogRecord) -> str:
        name, message = record.name, _escaped(_cut(record.getMessage(), _LONGEST))
        is_own = name.startswith(_OWN) and not name.startswith(_OF_HANDLERS)
        about = f"{self._process}{message}" if is_own else f"{self._process}{name}: {message}"
        text = f"{_time_of(record, _local)} {record.levelname:<7} {about}"
        fields = _fields(record)
        if "message_id" in fields and name not in _SENTENCES:
            # A line of the user's own: which message it was about is not in the sentence.
            which = f"{fields.get('topic')} {fields.get('message_id')} attempt {fields.get('attempt')}"
            text = f"{text} [{_escaped(_cut(which, _LONGEST))}]"
        below = [self.formatException(record.exc_info)] if record.exc_info else []
        below += [self.formatStack(record.stack_info)] if record.stack_info else []
        for block in below:
            lines = _cut(block, _LONGEST_TRACEBACK).split("\n")
            text += "".join(f"\n  {_escaped(line)}" for line in lines)
        return text


class JsonFormatter(logging.Formatter):
    """time (UTC), level, logger, message, process, the call's fields, and the exception if any."""

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": f"{_time_of(record, _utc)}+00:00",
            "level": record.levelname,
            "logger": record.name,
            "message": _cut(record.getMessage(), _LONGEST),
        }
        if process := self._process or _process_of(record):
            line["process"] = process
        for name, value in _fields(record).items():
            line.setdefault(name, _cut(value, _LONGEST) if isinstance(value, str) else value)
        if record.exc_info:
            line["exception"] = _cut(self.formatException(record.exc_info), _LONGEST_TRACEBACK)
        try:
            return _encode(line).decode()
        except (TypeError, UnicodeEncodeError):
            # A lone surrogate has no UTF-8, and some keys have no JSON.
            return _encode(_clean(line)).decode()


_encode = msgspec.json.Encoder(enc_hook=str).encode
"""Values that JSON does not know are shown as they print."""


def _process_of(record: logging.LogRecord) -> str:
    """A worker or a broker that `--log-config` set up is named by its records."""
    name = record.processName or ""
    return "" if name == "MainProcess" else name


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _cut(text: str, most: int) -> str:
    """Its beginning and its end: the last line of a traceback says what was raised."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} ... ({len(text) - most} characters left out) ... {text[-(most // 2) :]}"


def _escaped(text: str) -> str:
    return text if text.isprintable() else _UNPRINTABLE.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {str(_clean(key)): _clean(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(member) for member in value]
    return value
