"""docs/reference/settings.md says what the declarations say."""

from __future__ import annotations

import re

from tests.docs.config_tables import PAGE, TABLES, with_tables

TEXT = PAGE.read_text()


def test_the_tables_are_those_of_the_declarations() -> None:
    assert with_tables(TEXT) == TEXT, "run: python -m tests.docs.config_tables"


def test_every_table_has_its_section_and_there_is_no_other() -> None:
    assert re.findall(r"^### \[(\w+)\]$", TEXT, re.MULTILINE) == list(TABLES)
