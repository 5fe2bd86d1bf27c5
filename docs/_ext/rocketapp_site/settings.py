"""Every option of the settings as Markdown, from its declaration."""

from __future__ import annotations

from collections.abc import Iterator

from rocketapp.app import settings
from rocketapp.app.settings import OptionField, fields_of
from rocketapp.plugins.failures import FailuresConfig
from rocketapp.plugins.idempotency.config import IdempotencyConfig
from rocketapp.plugins.telemetry.config import TelemetryConfig

OF_PLUGINS = {"failures": FailuresConfig, "idempotency": IdempotencyConfig, "telemetry": TelemetryConfig}
"""The tables of the plugins that ship with rocketapp."""
TABLES = {**settings.TABLES, **OF_PLUGINS}


def options_of(table: str) -> str:
    """The options of one table: meaning, type, default, bounds, variable and name in Java."""
    return "\n\n".join("\n\n".join(_option(table, option)) for option in fields_of(TABLES[table]).values())


def heading_of(table: str, name: str) -> str:
    return f"#### `{table}.{name}`"


def _option(table: str, option: OptionField) -> Iterator[str]:
    yield heading_of(table, option.name)
    yield option.info.meaning
    facts = [_type(option), f"default {_default(option)}", *_bounds(option)]
    facts.append(f"`ROCKETAPP_{table.upper()}__{option.name.upper()}`")
    if option.info.java:
        facts.append(f"Java: `{option.info.java}`")
    yield " · ".join(facts)


def _type(option: OptionField) -> str:
    if option.kind is not tuple:
        return option.kind.__name__
    return "list of str"


def _default(option: OptionField) -> str:
    if option.default is None:
        return "none"
    if option.kind is tuple:
        return f"`{list(option.default)}`"
    if option.kind is bool:
        return f"`{str(option.default).lower()}`"
    return f'`"{option.default}"`' if option.kind is str else f"`{option.default}`"


def _bounds(option: OptionField) -> list[str]:
    info = option.info
    if info.choices:
        return [f"one of {', '.join(f'`{choice}`' for choice in info.choices)}"]
    if option.kind is str:
        return ["not empty"] if info.least else []
    return [
        f"{word} {value:g}" for word, value in (("at least", info.least), ("at most", info.most)) if value is not None
    ]
