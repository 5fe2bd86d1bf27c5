"""The table `lake` of the settings."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.plugin import option


@dataclass(frozen=True, slots=True, kw_only=True)
class LakeConfig:
    """The table `lake` of the settings."""

    writer: str = option("arrow", "What writes tables unless a sink says otherwise: arrow, or spark.")
