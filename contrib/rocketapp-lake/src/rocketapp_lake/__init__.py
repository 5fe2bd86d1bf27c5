"""A sink for topics: batches of messages land in a table, each message once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rocketapp.lazy_names import imported

if TYPE_CHECKING:
    from rocketapp_lake.errors import FencedError, GapError, SinkError
    from rocketapp_lake.options import SinkOptions, sink
    from rocketapp_lake.plugin import LakePlugin
    from rocketapp_lake.settings import LakeConfig

_HOMES = {
    "rocketapp_lake.errors": "FencedError GapError SinkError",
    "rocketapp_lake.options": "SinkOptions sink",
    "rocketapp_lake.plugin": "LakePlugin",
    "rocketapp_lake.settings": "LakeConfig",
}
__all__ = ["FencedError", "GapError", "LakeConfig", "LakePlugin", "SinkError", "SinkOptions", "sink"]


def __getattr__(name: str) -> Any:
    """Imported when it is used: every app with the plugin imports this package, and executors of Spark do."""
    return imported(__name__, globals(), _HOMES, name)
