"""A sink for topics: batches of messages land in a table exactly once, through Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketapp_pyspark.errors import FencedError, GapError, SinkError
from rocketapp_pyspark.plugin import SparkPlugin
from rocketapp_pyspark.settings import SparkConfig
from rocketapp_pyspark.typed import SinkOptions, sink

if TYPE_CHECKING:
    from rocketapp_pyspark.formats import register_format

__all__ = [
    "FencedError",
    "GapError",
    "SinkError",
    "SinkOptions",
    "SparkConfig",
    "SparkPlugin",
    "register_format",
    "sink",
]


def __getattr__(name: str) -> Any:
    """What needs Arrow is imported when it is used: every app with the plugin imports this package."""
    if name == "register_format":
        from rocketapp_pyspark.formats import register_format

        return register_format
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
