"""Tables in plain columns: cut to the width of a terminal, whole everywhere else.

Where a terminal is too narrow for that, each row is a block of lines, one for each column.
"""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from collections.abc import Sequence

import click

from rocketapp.cli.output import say

GAP = "  "
NARROWEST = 8
"""Columns that are cut keep this number of characters."""
Cell = str | int | None


def print_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print rows under a header. Numbers stand to the right; None is an empty cell."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    lines = table_lines(header, rows, width)
    colour = may_colour()
    if colour:
        lines[0] = click.style(lines[0], bold=True)
    say("\n".join(lines), colour=colour)


def may_colour() -> bool:
    """Only on a terminal that shows colours. NO_COLOR forbids them, FORCE_COLOR wants them everywhere."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR", "0") not in ("", "0"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def table_lines(header: Sequence[str], rows: Sequence[Sequence[Cell]], width: int | None) -> list[str]:
    """The header and a line for each row; the widest columns are cut until a line takes `width` places."""
    cells = [list(header), *([printable("" if cell is None else str(cell)) for cell in row] for row in rows)]
    numbers = [all(isinstance(row[at], int | None) for row in rows) and bool(rows) for at in range(len(header))]
    widths = [max(places(row[at]) for row in cells) for at in range(len(header))]
    if width is not None and not _narrow(widths, numbers, width - len(GAP) * (len(header) - 1)) and rows:
        return _blocks(cells)
    return [
        GAP.join(
            _filled(_cut(text, size), size, right=is_number)
            for text, size, is_number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in cells
    ]


def _narrow(widths: list[int], numbers: Sequence[bool], room: int) -> bool:
    """Make columns of text narrower; False when they do not fit. A number that is cut would be another one."""
    while sum(widths) > room:
        at = max((at for at, is_number in enumerate(numbers) if not is_number), key=widths.__getitem__, default=None)
        if at is None or widths[at] <= NARROWEST:
            return False
        widths[at] -= 1
    return True


def _blocks(cells: Sequence[Sequence[str]]) -> list[str]:
    """`NAME  value` for each column of each row, and an empty line between rows."""
    header, *rows = cells
    size = max(map(places, header))
    lines = []
    for row in rows:
        lines += [f"{_filled(name, size)}{GAP}{text}".rstrip() for name, text in zip(header, row, strict=True) if name]
        lines.append("")
    return lines[:-1]


def _cut(text: str, size: int) -> str:
    if places(text) <= size:
        return text
    kept, used = "", 0
    for letter in text:
        used += _places_of(letter)
        if used > size - 1:
            break
        kept += letter
    return kept + "…"


def _filled(text: str, size: int, *, right: bool = False) -> str:
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
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
