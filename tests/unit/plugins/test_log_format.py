"""What messages and exceptions say cannot forge a line of the log, steer a terminal, or fill a disk."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from rocketapp.plugins.log_format import make_formatter

FORGED = "nothing\n2026-01-01 10:00:00,000 INFO    handled 9: all is well\r\x1b[2K\x00\x9b1m\u2028\u202e"


def record_of(text: str, error: Exception | None = None, *, name: str = "shop") -> logging.LogRecord:
    try:
        if error is not None:
            raise error
    except Exception:
        return logging.LogRecord(name, logging.ERROR, "", 1, "%s", (text,), sys.exc_info())
    return logging.LogRecord(name, logging.INFO, "", 1, "%s", (text,), None)


@pytest.mark.parametrize("name", ["shop", "rocketapp.messages", "rocketapp.handlers.app:settle"])
def test_a_sentence_is_one_line_without_control_characters(name: str) -> None:
    line = make_formatter("text").format(record_of(f"tab\t{FORGED}", name=name))
    assert r"tab" + "\t" + r"nothing\n2026-01-01" in line
    assert r"\r\x1b[2K\x00\x9b1m\u2028\u202e" in line
    assert line.replace("\t", "").isprintable()


def test_the_message_that_a_line_is_about_is_escaped_too() -> None:
    record = record_of("paid")
    record.fields = {"topic": "orders", "message_id": FORGED, "attempt": 1}
    assert make_formatter("text").format(record).isprintable()


def test_no_line_of_a_traceback_looks_like_one_of_the_log() -> None:
    lines = make_formatter("text").format(record_of("failed", ValueError(FORGED))).split("\n")
    assert len(lines) > 3
    assert all(line.startswith("  ") for line in lines[1:])
    assert all(line.isprintable() for line in lines)
    assert lines[-2].strip() == "ValueError: nothing"


@pytest.mark.parametrize("kind", ["text", "json"])
def test_long_texts_are_cut_and_keep_their_end(kind: str) -> None:
    long = "x" * 5_000_000
    record = record_of(long, ValueError(f"{long} the end"))
    record.fields = {"key": long}
    written = make_formatter(kind).format(record)
    assert len(written) < 100_000
    assert "(4990000 characters left out)" in written
    assert "the end" in written
    if kind == "json":
        assert json.loads(written)["exception"].endswith("the end")
