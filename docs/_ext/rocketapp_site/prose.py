"""Docstrings are plain text with code in backticks: here they become Markdown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from textwrap import dedent

_SPECIAL = re.compile(r"[\\*\[\]<>|]")
_ITEM = re.compile(r"(`?[a-z_]\w*`?(?:, `?[a-z_]\w*`?)*): (.*)", re.DOTALL)


def plain(text: str) -> str:
    """The text with what Markdown would read as markup escaped, outside of backticks."""
    parts = text.split("`")
    return "`".join(part if number % 2 else _SPECIAL.sub(r"\\\g<0>", part) for number, part in enumerate(parts))


def cell(text: str) -> str:
    """The text for a cell of a table, where a bar ends the cell in backticks too."""
    return re.sub(r"(?<!\\)\|", r"\\|", plain(" ".join(text.split())))


def markdown(doc: str, names: Collection[str] = ()) -> str:
    """A docstring as Markdown. Lines `name: meaning` of these names become a list."""
    return "\n\n".join(_block(block, names) for block in re.split(r"\n\s*\n", doc.strip("\n")))


def first_sentence(doc: str) -> str:
    """What a docstring says first."""
    return re.split(r"(?<=\.)\s", " ".join(doc.split("\n\n", maxsplit=1)[0].split()))[0]


def _block(block: str, names: Collection[str]) -> str:
    lines = block.splitlines()
    if all(line.startswith("    ") for line in lines):
        return f"```text\n{dedent(block)}\n```"
    return "\n".join(_paragraphs(lines, names))


def _paragraphs(lines: Iterable[str], names: Collection[str]) -> Iterable[str]:
    """Items begin with a name and go on in lines that are indented, or in the middle of a sentence."""
    parts: list[list[str]] = []
    in_item = ended = False
    for line in lines:
        if _names_in(line) & set(names):
            parts.append([line])
            in_item = True
        elif not parts or (in_item and ended and not line.startswith(" ")):
            parts.append(["", line] if parts else [line])
            in_item = False
        else:
            parts[-1].append(line.strip())
        ended = line.endswith(".")
    for part in parts:
        text = " ".join(part)
        if _names_in(text) & set(names):
            yield from map(_item, _split(text, names))
        else:
            yield plain(text.strip()) if part[0] else f"\n{plain(text.strip())}"


def _split(text: str, names: Collection[str]) -> list[str]:
    """One line may hold several items: `tag: what to select by; keys: words that find it`."""
    return re.split(rf"(?<=[.;]) (?=(?:{'|'.join(names)}): )", text)


def _item(text: str) -> str:
    found = _ITEM.match(text)
    assert found is not None
    return f"- `{found[1].replace('`', '').replace(', ', '`, `')}`: {plain(found[2].removesuffix(';'))}"


def _names_in(line: str) -> set[str]:
    found = _ITEM.match(line)
    return set(found[1].replace("`", "").split(", ")) if found else set()
