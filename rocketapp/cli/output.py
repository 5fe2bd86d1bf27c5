"""Prints on stdout. When the reader goes away, as with `| head`, the command goes on and its exit code stays.

Tables have plain columns and are never cut: a narrow terminal breaks their lines.
"""

from __future__ import annotations

import contextlib
import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from rocketapp.cli.failure import DONE, FAILED, CommandError, discard_stdout, problem_of

GAP = "  "
Cell = str | int | None


class Column(NamedTuple):
    """A column of a table: its heading, its key in `--json`, and its value; None leaves it out there."""

    head: str | None
    key: str | None
    of: Callable[[Any], Any]


def counted(count: int, what: str) -> str:
    """`1 member`, `2 members`."""
    return f"{count} {what}{'' if count == 1 else 's'}"


def say(text: str, *, end: str = "\n", flush: bool = False) -> None:
    """Print one line, or several."""
    try:
        with writing():
            print(text, end=end, flush=flush)
    except BrokenPipeError:
        discard_stdout()


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Context manager for writes to stdout. Raises BrokenPipeError without a reader, CommandError for a full disk.

    What is buffered is dropped then, or it would fail again at the end.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_stdout()
        problem = f"stdout cannot be written: {problem_of(error)}: see where it is redirected to"
        raise CommandError(problem, FAILED) from error


def print_json(document: Any) -> None:
    """One document on several lines."""
    say(json.dumps(document, indent=2, ensure_ascii=needs_ascii()))


def needs_ascii() -> bool:
    """Whether stdout cannot encode every character."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") != "utf8"


def flush() -> None:
    """Write what is buffered. Raises CommandError when it cannot be written, but not for a reader that is gone."""
    say("", end="", flush=True)


def item_lines(columns: Sequence[Column], items: Iterable[Any]) -> list[str]:
    """A table with one row for each item."""
    shown = [column for column in columns if column.head is not None]
    heads = [column.head or "" for column in shown]
    return table_lines(heads, [[column.of(item) for column in shown] for item in items])


def show_items(columns: Sequence[Column], items: Sequence[Any], *, as_json: bool) -> int:
    """Print all items as one JSON document or as a table. Returns the exit code."""
    return show(items_as_json(columns, items), item_lines(columns, items), as_json=as_json)


def show(document: Any, lines: Iterable[str], *, as_json: bool) -> int:
    """Print a JSON document, or lines of text. Returns the exit code."""
    if as_json:
        print_json(document)
    else:
        for line in lines:
            say(line)
    return DONE


def items_as_json(columns: Sequence[Column], items: Iterable[Any]) -> list[dict[str, Any]]:
    """A list with one object for each item."""
    return [{column.key: column.of(item) for column in columns if column.key is not None} for item in items]


def table_lines(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """The lines of a table. Numbers are right-aligned; None is an empty cell."""
    cells = [list(header), *([printable("" if cell is None else str(cell)) for cell in row] for row in rows)]
    numbers = [all(isinstance(row[at], int | None) for row in rows) and bool(rows) for at in range(len(header))]
    widths = [max(places(row[at]) for row in cells) for at in range(len(header))]
    return [
        GAP.join(
            _filled(text, size, right=is_number) for text, size, is_number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in cells
    ]


def _filled(text: str, size: int, *, right: bool) -> str:
    missing = " " * (size - places(text))
    return missing + text if right else text + missing


def places(text: str) -> int:
    """How many columns of a terminal the text takes: East Asian letters take two, combining accents none."""
    return len(text) if text.isascii() else sum(map(_places_of, text))


def _places_of(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) == "Me":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def printable(text: str) -> str:
    """The text with control characters escaped, because a terminal would obey them."""
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
