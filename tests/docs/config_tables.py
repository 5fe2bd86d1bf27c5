"""The tables of the page of settings, from the declarations; `python -m tests.docs.config_tables` writes them there."""

from __future__ import annotations

import re

from rocketapp.app.settings import settings
from rocketapp.app.settings.values import OptionField, fields_of
from rocketapp.plugins.failures import FailuresConfig
from rocketapp.plugins.telemetry.config import TelemetryConfig
from tests.docs.pages import ROOT

PAGE = ROOT / "docs/reference/settings.md"
OF_PLUGINS = {"failures": FailuresConfig, "telemetry": TelemetryConfig}
"""The tables of the plugins that ship with rocketapp."""
TABLES = {**settings.TABLES, **OF_PLUGINS}


def table_of(name: str) -> str:
    """The options of one table, as the page shows them."""
    lines = ["| Key | Type | Default | Bounds | Means | Java |", "| --- | --- | --- | --- | --- | --- |"]
    for option in fields_of(TABLES[name]).values():
        info = option.info
        java = f"`{info.java}`" if info.java else ""
        cells = [
            f"`{option.name}`",
            type_of(option),
            default_of(option),
            bounds_of(option),
            info.meaning,
            java,
        ]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines)


def type_of(option: OptionField) -> str:
    if option.kind is not tuple:
        return option.kind.__name__
    return f"list of {option.item.__name__}" if option.item in (str, float) else "list of tables"


def default_of(option: OptionField) -> str:
    if option.kind is tuple:
        return f"`{list(option.default)}`"
    if option.kind is bool:
        return f"`{str(option.default).lower()}`"
    return f'`"{option.default}"`' if option.kind is str else f"`{option.default}`"


def bounds_of(option: OptionField) -> str:
    info = option.info
    if info.choices:
        return ", ".join(f"`{choice}`" for choice in info.choices)
    bounds = [f"{word} {value:g}" for word, value in (("≥", info.least), ("≤", info.most)) if value is not None]
    return ", ".join(bounds)


def with_tables(page: str) -> str:
    """The page with every table as it has to be."""

    def fresh(match: re.Match[str]) -> str:
        return f"{match[1]}{table_of(match[2])}\n"

    return re.sub(r"(^### \[(\w+)\]\n(?:(?!^[|#]).*\n)*)(?:^\|.*\n)*", fresh, page, flags=re.MULTILINE)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text()))
