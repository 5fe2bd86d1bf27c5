"""docs/testing.md: its tests pass, and its tables name what there is."""

from __future__ import annotations

import re
import sys
import types

import pytest

from rocketapp.testing.app import AsyncTestedApp, TestedApp
from rocketapp.testing.faults import Faults
from rocketapp.testing.stage import FEWER_ROUNDS
from tests.docs.pages import ROOT, Block, blocks, run_tests

PAGE = ROOT / "docs" / "testing.md"


@pytest.mark.parametrize(
    "block", [block for block in blocks(PAGE) if block.language == "python"], ids=lambda block: block.place
)
def test_the_tests_of_the_page_pass(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("snippet")
    monkeypatch.setitem(sys.modules, "snippet", module)
    exec(compile(block.text, block.place, "exec"), vars(module))
    assert run_tests(module) > 0


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
