"""Tables, and what a terminal gets beside the text."""

from __future__ import annotations

import pytest

from rocketapp.cli.output import may_colour, places, print_table, table_lines
from tests.cases import cases

HEADER = ("TOPIC", "LAG")
ROWS = [("orders", 7), ("a-topic-with-a-very-long-name", 1200), ("x", None)]


def test_numbers_stand_to_the_right_and_columns_below_each_other() -> None:
    assert table_lines(HEADER, ROWS) == [
        "TOPIC                           LAG",
        "orders                            7",
        "a-topic-with-a-very-long-name  1200",
        "x",
    ]


@cases("topic", ["orders", "注文" * 30, "e\u0301" * 90, "x" * 90], ids=["short", "wide", "accents", "long"])
def test_columns_stand_below_each_other_as_a_terminal_shows_them(topic: str) -> None:
    header = ("TOPIC", "BROKER", "QUEUE", "REASON")
    lines = table_lines(header, [(topic, "broker-a", 123, "ValueError"), ("b", "broker-b", 0, "")])
    begins = {
        places(line[: line.index(word)]) for line, word in zip(lines, ("BROKER", "broker-a", "broker-b"), strict=True)
    }
    assert len(begins) == 1


@pytest.mark.parametrize(("text", "count"), [("abc", 3), ("注文", 4), ("e\u0301", 1), ("ｱ", 1), ("🎉", 2)])
def test_how_many_columns_a_text_takes(text: str, count: int) -> None:
    assert places(text) == count


def test_a_terminal_is_not_given_control_characters() -> None:
    assert table_lines(("A",), [("\x1b[31mred",)])[1] == "\\x1b[31mred"


def test_without_rows_there_is_the_header() -> None:
    assert table_lines(HEADER, []) == ["TOPIC  LAG"]


def test_what_is_no_terminal_gets_no_colours(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(HEADER, ROWS)
    assert capsys.readouterr().out.splitlines() == table_lines(HEADER, ROWS)


@pytest.mark.parametrize(
    ("is_terminal", "environment", "may"),
    [
        (True, {}, True),
        (False, {}, False),
        (True, {"NO_COLOR": "1"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1"}, True),
        (False, {"FORCE_COLOR": "0"}, False),
        (True, {"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
    ],
)
def test_colours_need_a_terminal_and_leave(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, environment: dict[str, str], may: bool
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm"} | environment).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    assert may_colour() is may


def test_forced_colours_are_written_into_a_pipe(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_table(HEADER, ROWS)
    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("\x1b[1mTOPIC")
    assert rest == table_lines(HEADER, ROWS)[1:]
