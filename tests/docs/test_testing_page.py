"""docs/testing.md: its snippets are tests, and its tables name what there is."""

from __future__ import annotations

import re

from rocketapp.testing.app import AsyncTestedApp, TestedApp
from rocketapp.testing.faults import Faults
from rocketapp.testing.stage import FEWER_ROUNDS
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs" / "testing.md"


def test_every_snippet_of_the_page_is_a_test() -> None:
    """They are run with the snippets of all pages."""
    assert [block.place for block in blocks(PAGE) if block.language == "python" and "def test_" not in block.text] == []


def methods(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_the_tables_name_what_there_is() -> None:
    text = PAGE.read_text()
    assert {name for name in methods(TestedApp) if f"`t.{name}" not in text} == set()
    assert methods(TestedApp) == methods(AsyncTestedApp)
    assert {name for name in methods(Faults) - {"close"} if f"| `{name}(" not in text} == set()


def test_the_defaults_of_the_kit_are_told() -> None:
    told = " ".join(re.findall(r"A few options.*?own\.", PAGE.read_text(), re.DOTALL))
    missing = [
        f"{table}.{key}" for table, options in FEWER_ROUNDS.items() for key in options if f"`{table}.{key}`" not in told
    ]
    assert missing == []
