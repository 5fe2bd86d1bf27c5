"""The table of Java's settings in from-java.md; `python -m tests.docs.java_settings` writes it from the options."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rocketapp.app import settings
from rocketapp.app.settings import OptionField, fields_of
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/how-to/from-java.md"
_HEAD = "| Java's client | Here |\n| --- | --- |\n"


def of_java() -> Iterator[tuple[str, OptionField]]:
    """Table and option, of all that have another name in Java's client."""
    for table, kind in settings.TABLES.items():
        for option in fields_of(kind).values():
            if option.info.java and table != "broker":
                yield table, option


def with_table(page: str) -> str:
    """The page with the table as it has to be."""
    rows = "".join(f"| `{option.info.java}` | `{table}.{option.name}` |\n" for table, option in of_java())
    return re.sub(re.escape(_HEAD) + r"(?:^\|.*\n)*", lambda _: _HEAD + rows, page, flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
