"""Tables in plain columns: cut to the width of a terminal, whole everywhere else."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence

import click

GAP = "  "
NARROWEST = 8
"""Columns that are cut keep this number of characters."""
Cell = str | int | None


def print_table(header: Sequence[str], rows: Sequence[Sequence[Cell]]) -> None:
    """Print rows under a header. Numbers stand to the right; None is an empty cell."""
    is_terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if is_terminal else None
    first, *rest = table_lines(header, rows, width)
    click.echo(click.style(first, bold=True) if may_colour() else first)
    for line in rest:
        click.echo(line)


def may_colour() -> bool:
    """Only on a terminal, and not where NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def table_lines(header: Sequence[str], rows: Sequence[Sequence[Cell]], width: int | None) -> list[str]:
    """The header and a line for each row; the widest columns are cut until a line has `width` characters."""
    cells = [list(header), *([printable("" if cell is None else str(cell)) for cell in row] for row in rows)]
    numbers = [all(isinstance(row[at], int | None) for row in rows) and bool(rows) for at in range(len(header))]
    widths = [max(len(row[at]) for row in cells) for at in range(len(header))]
    if width is not None:
        _narrow(widths, width - len(GAP) * (len(header) - 1))
    return [
        GAP.join(
            _cut(text, size).rjust(size) if is_number else _cut(text, size).ljust(size)
            for text, size, is_number in zip(row, widths, numbers, strict=True)
        ).rstrip()
        for row in cells
    ]


def _narrow(widths: list[int], room: int) -> None:
    while sum(widths) > room and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1


def _cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[: size - 1] + "…"


def printable(text: str) -> str:
    """Control characters are escaped, for a terminal obeys them."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
