"""A sink for topics: batches of messages land in a table, each message once."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rocketapp_lake.errors import FencedError, GapError, SinkError
    from rocketapp_lake.options import SinkOptions, sink
    from rocketapp_lake.plugin import LakePlugin
    from rocketapp_lake.settings import LakeConfig

_HOMES = {
    "errors": ("FencedError", "GapError", "SinkError"),
    "options": ("SinkOptions", "sink"),
    "plugin": ("LakePlugin",),
    "settings": ("LakeConfig",),
}
__all__ = ["FencedError", "GapError", "LakeConfig", "LakePlugin", "SinkError", "SinkOptions", "sink"]


def __getattr__(name: str) -> Any:
    """Imported when it is used: every app with the plugin imports this package, and executors of Spark do."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
