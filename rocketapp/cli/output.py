"""What commands print on stdout. A reader that goes away, as `| head` does, ends no command: its exit code stays.

Tables are plain columns, and whole: a terminal that is too narrow breaks their lines.
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
    """One fact about each item of a list: how a table calls it, and how `--json` does; None where it is left out."""

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
    """Within, stdout is written. Raises BrokenPipeError when its reader is gone, CommandError for a full disk.

    Then what is buffered is dropped, or it would fail again at the end.
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
    """Whether stdout cannot hold every letter as it is."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") != "utf8"


def flush() -> None:
    """Write what is buffered. Raises CommandError when it cannot be written, but not for a reader that is gone."""
    say("", end="", flush=True)


def item_lines(columns: Sequence[Column], items: Iterable[Any]) -> list[str]:
    """A table with a row for each item."""
    shown = [column for column in columns if column.head is not None]
    heads = [column.head or "" for column in shown]
    return table_lines(heads, [[column.of(item) for column in shown] for item in items])


def show_items(columns: Sequence[Column], items: Sequence[Any], *, as_json: bool) -> int:
    """All that a command says: one document, or a table. Returns its exit code."""
    return show(items_as_json(columns, items), item_lines(columns, items), as_json=as_json)


def show(document: Any, lines: Iterable[str], *, as_json: bool) -> int:
    """The same with lines of text in place of a table."""
    if as_json:
        print_json(document)
    else:
        for line in lines:
            say(line)
    return DONE


def items_as_json(columns: Sequence[Column], items: Iterable[Any]) -> list[dict[str, Any]]:
    """A list with an object for each item."""
    return [{column.key: column.of(item) for column in columns if column.key is not None} for item in items]


def table_lines(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """The header and a line for each row. Numbers stand to the right; None is an empty cell."""
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
    """How many columns a terminal needs for it: letters of East Asia take two, accents of their own none."""
    return len(text) if text.isascii() else sum(map(_places_of, text))


def _places_of(letter: str) -> int:
    if unicodedata.combining(letter) or unicodedata.category(letter) == "Me":
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def printable(text: str) -> str:
    """Control characters are escaped, for a terminal obeys them."""
    return text if text.isprintable() else "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)
