"""The tables of Java's settings in from-java.md; `python -m tests.docs.java_settings` writes them from the options."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from rocketapp.app import settings
from rocketapp.app.settings import OptionField, fields_of
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/how-to/from-java.md"
_CLIENT = "| Java's client | Here | Default |\n| --- | --- | --- |\n"
_BROKER = "| Apache's broker | The embedded broker |\n| --- | --- |\n"


def of_java() -> Iterator[tuple[str, OptionField]]:
    """Table and option, of all that have another name in Java's client or broker."""
    for table, kind in settings.TABLES.items():
        for option in fields_of(kind).values():
            if option.info.java:
                yield table, option


def _rows(*, of_broker: bool) -> str:
    rows = []
    for table, option in of_java():
        if (table == "broker") is of_broker:
            default = "" if of_broker else f" `{json.dumps(option.default)}` |"
            rows.append(f"| `{option.info.java}` | `{table}.{option.name}` |{default}\n")
    return "".join(rows)


def with_tables(page: str) -> str:
    """The page with both tables as they have to be."""
    for head, of_broker in ((_CLIENT, False), (_BROKER, True)):
        whole = head + _rows(of_broker=of_broker)
        page = re.sub(re.escape(head) + r"(?:^\|.*\n)*", lambda _, whole=whole: whole, page, flags=re.MULTILINE)
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
