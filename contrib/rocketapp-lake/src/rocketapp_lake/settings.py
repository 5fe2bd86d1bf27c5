"""The table `lake` of the settings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rocketapp import ConfigError
from rocketapp.plugin import option


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeConfig:
    """The table `lake` of the settings."""

    database: str = option("", 'The database of sinks with format="sql" that have no url=.', secret=True)
    storage: tuple[str, ...] = option(
        (), "Options of object stores, each as name=value, as deltalake takes them.", secret=True
    )
    writer: str = option(
        "arrow", "What writes tables unless a sink says otherwise: arrow, or spark.", choices=("arrow", "spark")
    )


def by_name(entries: Sequence[str], setting: str, example: str) -> dict[str, str]:
    """Of entries `name=value`. Raises ConfigError, which names no value."""
    for number, entry in enumerate(entries):
        if "=" not in entry.strip("="):
            raise ConfigError(f"{setting}[{number}]", f"give name=value, such as {example}")
    return dict(entry.partition("=")[::2] for entry in entries)


def storage_of(config: LakeConfig) -> dict[str, str]:
    """By name. Raises ConfigError."""
    return by_name(config.storage, "lake.storage", "aws_region=eu-central-1")
