"""The pages of the documentation, and the fenced blocks in them."""

from __future__ import annotations

import asyncio
import inspect
import re
import types
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")])
_BLOCK = re.compile(r"^```(\w+)[^`\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """One fenced block."""

    place: str
    language: str
    text: str


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """Every fenced block of a page, with the line of its first line."""
    text = page.read_text()
    return [
        Block(f"{name_of(page)}:{text.count(chr(10), 0, match.start()) + 2}", match[1], match[2])
        for match in _BLOCK.finditer(text)
    ]


def all_blocks(language: str) -> list[Block]:
    return [block for page in PAGES for block in blocks(page) if block.language == language]


def run_tests(module: types.ModuleType) -> int:
    """Run the test functions of a snippet; how many it has."""
    tests = [one for name, one in vars(module).items() if name.startswith("test_")]
    for test in tests:
        if inspect.iscoroutinefunction(test):
            asyncio.run(test())
        else:
            test()
    return len(tests)


def commands(page: Path | None = None) -> list[tuple[str, str]]:
    """Place and text of every `$ command` in console blocks."""
    found = all_blocks("console") if page is None else [one for one in blocks(page) if one.language == "console"]
    return [
        (block.place, line.removeprefix("$ "))
        for block in found
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]
