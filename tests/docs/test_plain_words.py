"""Docstrings, comments and pages are plain English: no riddles about who does what."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import PAGES, ROOT, name_of

RIDDLES = re.compile(
    r"\b(whoever|whatever it|nobody|somebody|no one|tod[o]|(?<!there )(?:is|are) no|so many"
    r"|(?-i:(?<!here )(?:is|are) none)|goes on nevertheless|is told and left)\b",
    re.IGNORECASE,
)
"""Each of them hides a subject or a fact: name the one that acts, and say what is there. "There is no" does."""

PLAIN = ("rocketapp", "docs", "example_app", "contrib", "templates", "benchmarks", "tests")
"""The folders that are held to it."""


def sources() -> Iterator[Path]:
    for name in PLAIN:
        yield from sorted(file for file in (ROOT / name).rglob("*.py") if file != Path(__file__))


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Line and text of every docstring, of modules, classes, functions and attributes, and of every comment."""
    text = file.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def names_of_tests(file: Path) -> Iterator[tuple[int, str]]:
    """Line and words of every test's name."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")


def riddles(text: str) -> list[str]:
    return [match.group() for match in RIDDLES.finditer(" ".join(text.split()))]


def test_docstrings_and_comments_hold_no_riddles() -> None:
    found = [
        f"{name_of(file)}:{line}: {riddle}"
        for file in sources()
        for line, text in prose(file)
        for riddle in riddles(text)
    ]
    assert not found, "\n".join(found)


def test_names_of_tests_hold_no_riddles() -> None:
    words = re.compile(r"\b(whoever|nobody|nobodys|somebody|so many|(?<!there )(?:is|are) none)\b")
    found = [
        f"{name_of(file)}:{line}: {text}"
        for file in sources()
        for line, text in names_of_tests(file)
        if words.search(text)
    ]
    assert not found, "\n".join(found)


def test_pages_hold_no_riddles() -> None:
    pages = [*PAGES, *(ROOT / "contrib").rglob("*.md"), ROOT / "templates/README.md", ROOT / "example_app/README.md"]
    found = [f"{name_of(page)}: {riddle}" for page in pages for riddle in riddles(page.read_text())]
    assert not found, "\n".join(found)
