"""The table of Java's settings in from-java.md; `python -m tests.docs.java_settings` writes it from the options."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rocketapp.app.settings import settings
from rocketapp.app.settings.values import OptionField, fields_of
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/how-to/from-java.md"
_HEAD = "| Java | Here | Default |\n| --- | --- | --- |\n"


def of_java() -> Iterator[tuple[str, OptionField]]:
    """Table and option, of all that have another name in Java's client or broker."""
    for table, kind in settings.TABLES.items():
        for option in fields_of(kind).values():
            if option.info.java:
                yield table, option


def table() -> str:
    rows = [
        f"| `{option.info.java}` | `{name}.{option.name}` | `{json.dumps(option.default)}` |\n"
        for name, option in of_java()
    ]
    return _HEAD + "".join(rows)


def with_table(page: str) -> str:
    """The page with the table as it has to be."""
    return re.sub(re.escape(_HEAD) + r"(?:^\|.*\n)*", lambda _: table(), page, flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
