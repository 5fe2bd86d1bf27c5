"""Tables: what fits a terminal, and what is whole elsewhere."""

from __future__ import annotations

import pytest

from rocketapp.cli.tables import may_colour, print_table, table_lines

HEADER = ("TOPIC", "LAG")
ROWS = [("orders", 7), ("a-topic-with-a-very-long-name", 1200), ("x", None)]


def test_numbers_stand_to_the_right_and_columns_below_each_other() -> None:
    assert table_lines(HEADER, ROWS, None) == [
        "TOPIC                           LAG",
        "orders                            7",
        "a-topic-with-a-very-long-name  1200",
        "x",
    ]


def test_a_table_is_cut_to_the_width_of_the_terminal() -> None:
    lines = table_lines(HEADER, ROWS, 20)
    assert max(map(len, lines)) == 20
    assert lines[2] == "a-topic-with-…  1200"
    assert lines[1].split() == ["orders", "7"]


def test_on_the_narrowest_terminal_columns_can_still_be_read() -> None:
    assert table_lines(HEADER, ROWS, 3)[2] == "a-topic…  1200"


def test_a_terminal_is_not_given_control_characters() -> None:
    assert table_lines(("A",), [("\x1b[31mred",)], None)[1] == "\\x1b[31mred"


def test_without_rows_there_is_the_header() -> None:
    assert table_lines(HEADER, [], 80) == ["TOPIC  LAG"]


def test_what_is_no_terminal_gets_everything_and_no_colours(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    print_table(HEADER, ROWS)
    assert capsys.readouterr().out.splitlines() == table_lines(HEADER, ROWS, None)


@pytest.mark.parametrize(
    ("is_terminal", "no_colour", "may"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colours_need_a_terminal_and_leave(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, no_colour: str, may: bool
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: is_terminal)
    monkeypatch.setenv("NO_COLOR", no_colour)
    assert may_colour() is may
