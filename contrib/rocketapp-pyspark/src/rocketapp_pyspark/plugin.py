"""The plugin: the settings of the session."""

from __future__ import annotations

from rocketapp.plugin import hookimpl
from rocketapp_pyspark.settings import SparkConfig


class SparkPlugin:
    """One per app."""

    @hookimpl
    def options(self) -> tuple[str, type[SparkConfig]]:
        return "spark", SparkConfig
