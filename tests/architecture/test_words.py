"""One word per idea: classes of the engine have no names that the glossary has replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.architecture.source import FILES, PACKAGE, ROOT

GLOSSARY = (ROOT / "docs/explanation/glossary.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("| ").split(" | ")] for line in GLOSSARY.splitlines() if line[:4] == "| **"
]
ENGINE = ("consumer", "producer", "client", "state")
OF_THE_FIELD = ("round robin",)
"""Names that everybody uses, although they hold a replaced word."""


def replaced_words() -> set[str]:
    words = {word.strip() for row in ROWS if len(row) == 3 for word in row[2].split(",")}
    return words - {""}


def words_of(name: str) -> str:
    """`QueueLease` -> `queue lease`."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)).lower()


def is_replaced(name: str) -> bool:
    words = words_of(name)
    for known in OF_THE_FIELD:
        words = words.replace(known, "")
    return any(re.search(rf"\b{word}s?\b", words) for word in replaced_words())


def class_names(*rooms: str) -> Iterator[str]:
    """Without rooms those of all of them."""
    for file in FILES:
        if not rooms or file.relative_to(PACKAGE).parts[0] in rooms:
            yield from (node.name for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef))


def test_no_class_of_the_engine_has_a_replaced_word_in_its_name() -> None:
    assert [name for name in class_names(*ENGINE) if is_replaced(name)] == []


def test_no_class_is_named_for_a_pattern() -> None:
    assert [name for name in class_names() if name.endswith(("Impl", "Manager", "Service", "Helper"))] == []


def test_a_replaced_word_is_found_in_a_name() -> None:
    assert [is_replaced(name) for name in ("KeyLane", "HandOver", "_TrySuspects")] == [True, True, True]
    assert [is_replaced(name) for name in ("RoundRobin", "Workers", "Planes", "HandOut")] == [False] * 4


def test_the_glossary_has_at_most_25_terms_and_each_once() -> None:
    terms = [term for row in ROWS for term in re.findall(r"^\*\*(.+?)\*\*", row[0])]
    assert 10 < len(terms) <= 25
    assert len(set(terms)) == len(terms)
    assert len(replaced_words()) > 25
