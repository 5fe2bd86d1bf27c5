"""Tables as plain columns."""

from __future__ import annotations

import pytest

from rocketapp.cli.output import places, table_lines
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
