"""Drawings of plain text become SVG: boxes for what arrows lead to, lines, and the text at its place.

The text in the Markdown is the source, and what is read on a terminal. Its block says which kind it is:

- ` ```text drawing `: words that are joined by arrows. Words that an arrow leads to, or that begin one, are boxes;
  words within a line, or at the end of one without a head, say what the line means.
- ` ```text layers `: a line for each layer, with names and what they are; what lies below is used by what lies above.
- ` ```text terminal `: what was typed and printed in a terminal.
- ` ```text bars `: a line for each bar, with words and a number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

CELL, ROW = 8, 24
"""Width and height of one character."""
BAR = 60
"""Characters of the longest bar."""
_BLOCK = re.compile(r"^```text (drawing|layers|terminal|bars)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"(?<![^\s|])(?:[<+]?-[-+]*[>+]?|[+v^])(?![^\s|])|\|(?! [^\s|])|(?<![^\s|] )\|")
"""A line with its heads, a corner, a head that points up or down, or a bar, which between words is one of them."""
_UPRIGHT = "|+v^"


class Words(NamedTuple):
    """Words without a line through them."""

    row: int
    start: int
    end: int
    text: str


def drawn(text: str) -> str:
    """The text of a page with its drawings as SVG."""
    return _BLOCK.sub(lambda found: f"```{{raw}} html\n{KINDS[found[1]](found[2].splitlines())}\n```", text)


def plain(text: str) -> str:
    """The text of a page with its drawings as what they are elsewhere."""
    return _BLOCK.sub(r"```text\n\2```", text)


def arrows(lines: Sequence[str]) -> str:
    """Words that are joined by arrows."""
    cells = {
        (row, at): char
        for row, line in enumerate(lines)
        for found in _LINE.finditer(line)
        for at, char in enumerate(found[0], found.start())
    }
    words = [word for row, line in enumerate(lines) for word in _words(row, line, cells)]
    shapes, texts = [], []
    for word in words:
        box = _is_box(word, cells)
        if box:
            shapes.append(_rect(word.row, word.start, word.end))
        texts.append(_text(word.row, word.start, word.text, "" if box else "said"))
    strokes, heads = _strokes(lines, cells)
    parts = [*shapes, f'<path class="line" d="{strokes}"/>', f'<path class="head" d="{heads}"/>', *texts]
    return _svg("drawing", parts, max(map(len, lines)) + 1, len(lines))


def layers(lines: Sequence[str]) -> str:
    """A band for each layer, with a box for each name."""
    cut = [re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in lines]
    wide = max(len(names) for names, *said in cut if said) + 3
    length = max(wide + len(said[0]) for _, *said in cut if said) + 1
    parts = []
    for row, (names, *said) in enumerate(cut):
        y = row * ROW + 2
        if lines[row].startswith(" " * 8):  # goes on with what the line above said
            parts.append(_text(row, wide, names, "said"))
            continue
        parts.append(f'<rect class="band" x="0" y="{y}" width="{length * CELL}" height="{ROW - 4}" rx="4"/>')
        at = 1
        for name in names.split(" | "):
            parts.append(_rect(row, at, at + len(name)))
            parts.append(_text(row, at, name))
            at += len(name) + 3
        parts += [_text(row, wide, one, "said") for one in said]
    return _svg("layers", parts, length, len(lines))


def terminal(lines: Sequence[str]) -> str:
    """A window with what was typed and printed."""
    parts = [_text(row, 1, line, _KIND_OF.get(line[:2], "")) for row, line in enumerate(lines) if line]
    return _svg("terminal", parts, max(map(len, lines)) + 2, len(lines))


def bars(lines: Sequence[str]) -> str:
    """A bar for each number, the longest as long as the room for it."""
    cut = [line.strip().rsplit(maxsplit=1) for line in lines]
    wide, most = max(len(name) for name, _ in cut) + 2, max(float(number) for _, number in cut)
    parts = []
    for row, (name, number) in enumerate(cut):
        length = round(float(number) / most * BAR * CELL)
        place = f'x="{wide * CELL}" y="{row * ROW + 4}" width="{length}" height="{ROW - 8}"'
        parts.append(f'{_text(row, 1, name)}<rect class="bar" {place}/>')
        parts.append(_text(row, wide + 1 + -(-length // CELL), number, "said"))
    return _svg("bars", parts, wide + BAR + max(len(number) for _, number in cut) + 2, len(lines))


KINDS: Mapping[str, Callable[[Sequence[str]], str]] = {
    "drawing": arrows,
    "layers": layers,
    "terminal": terminal,
    "bars": bars,
}
_KIND_OF = {"$ ": "typed", "# ": "said"}


def _char(lines: Sequence[str], row: int, at: int) -> str:
    return lines[row][at] if 0 <= row < len(lines) and at < len(lines[row]) else " "


def _words(row: int, line: str, cells: Mapping[tuple[int, int], str]) -> Iterator[Words]:
    """What stands between two lines, or two blanks."""
    bare = "".join(" " if (row, at) in cells else char for at, char in enumerate(line))
    edges = [at for at in range(len(line)) if (row, at) in cells]
    for found in re.finditer(r"\S+(?: \S+)*", bare):
        inside = [at for at in edges if found.start() < at < found.end()]
        start = found.start()
        for stop in [*inside, found.end()]:
            text = bare[start:stop]
            if text.strip():
                begin = start + len(text) - len(text.lstrip())
                yield Words(row, begin, begin + len(text.strip()), text.strip())
            start = stop + 1


def _is_box(word: Words, cells: Mapping[tuple[int, int], str]) -> bool:
    """Whether an arrow leads to these words, or they are where one begins."""
    left, right = cells.get((word.row, word.start - 2), " "), cells.get((word.row, word.end + 1), " ")
    above = {cells.get((word.row - 1, at)) for at in range(word.start, word.end)}
    below = {cells.get((word.row + 1, at)) for at in range(word.start, word.end)}
    if left == ">" or right == "<" or "v" in above or "^" in below:
        return True
    return right in "-" and left not in "-+|<"


def _strokes(lines: Sequence[str], cells: Mapping[tuple[int, int], str]) -> tuple[str, str]:
    """The paths of all lines, and of all heads."""
    strokes, heads = [], []
    for (row, at), char in sorted(cells.items()):
        x, y, half, up = at * CELL + CELL // 2, row * ROW + ROW // 2, CELL // 2, ROW // 2
        sides = {side: cells.get((row, at + side), "") for side in (-1, 1)}
        if char in "-<>":
            # A line goes on through the blank between it and the words.
            left = x - half if sides[-1] else x - CELL
            right = x + half if sides[1] else x + CELL
            strokes.append(f"M{left} {y}H{right}")
        elif char == "|":
            strokes.append(f"M{x} {y - up}V{y + up}")
        elif char == "+":
            strokes += [f"M{x} {y}H{x + side * half}" for side in sides if sides[side] and sides[side] in "-+<>"]
            if _char(lines, row - 1, at) != " ":  # words above it are what it comes from
                strokes.append(f"M{x} {y}V{y - up}")
            if cells.get((row + 1, at), " ") in _UPRIGHT:
                strokes.append(f"M{x} {y}V{y + up}")
        else:
            strokes.append(f"M{x} {y - up}V{y + up}")
        if char in "<>":
            tip, back = (x + CELL, -CELL) if char == ">" else (x - CELL, CELL)
            heads.append(f"M{tip} {y}l{back} -4v8z")
        elif char in "v^":
            tip, back = (y + up + 2, -CELL) if char == "v" else (y - up - 2, CELL)
            heads.append(f"M{x} {tip}l-4 {back}h8z")
    return "".join(strokes), "".join(heads)


def _rect(row: int, start: int, end: int) -> str:
    """A box around words."""
    place = f'x="{start * CELL - CELL // 2}" y="{row * ROW + 2}" width="{(end - start + 1) * CELL}"'
    return f'<rect {place} height="{ROW - 4}" rx="4"/>'


def _text(row: int, at: int, text: str, kind: str = "") -> str:
    """The width is given, so that every font of fixed width fits."""
    place = f'x="{at * CELL}" y="{row * ROW + ROW * 2 // 3}" textLength="{len(text) * CELL}"'
    said = f' class="{kind}"' if kind else ""
    return f"<text {place}{said}>{escape(text)}</text>"


def _svg(kind: str, parts: Sequence[str], columns: int, rows: int) -> str:
    size = f'width="{columns * CELL}" height="{rows * ROW}" viewBox="0 0 {columns * CELL} {rows * ROW}"'
    svg = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(parts)}</svg>'
    return f'<figure class="drawn {kind}">{svg}</figure>'
