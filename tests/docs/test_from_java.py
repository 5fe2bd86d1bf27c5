"""docs/how-to/from-java.md: settings and names are those of the code, and what it says is missing is missing."""

from __future__ import annotations

import re

import pytest

from rocketapp import Message
from rocketapp.app import settings
from rocketapp.app.settings import fields_of
from tests.docs.java_settings import PAGE, of_java, with_table

TEXT = PAGE.read_text()
OPTIONS = {f"{table}.{name}" for table, kind in settings.TABLES.items() for name in fields_of(kind)}


def section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_table_of_settings_is_that_of_the_declarations() -> None:
    assert with_table(TEXT) == TEXT, "run: python -m tests.docs.java_settings"
    names = [f"`{table}.{option.name}`" for table, option in of_java()]
    assert len(names) > 30
    assert [name for name in names if name not in TEXT] == []


def test_the_members_of_a_message_exist() -> None:
    cells = [line.split("|")[2] for line in section("The message").splitlines() if "get" in line]
    names = {name for cell in cells for name in re.findall(r"`(\w+)", cell)}
    assert len(names) > 10
    assert [name for name in names if not hasattr(Message, name)] == []


@pytest.mark.parametrize(
    ("told", "options"),
    [
        ("the second form of namespaces", {one for one in OPTIONS if one.endswith("namespace_v2")}),
    ],
)
def test_what_is_said_to_be_missing_is(told: str, options: set[str]) -> None:
    assert told in section("What is not there yet")
    assert options == set(), "it is there now: say how it is used"
