"""The version of a table: a count of its changes, as in Apache's DataVersion. Apache's tools compare it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DataVersion:
    """A counter of changes and the time of the last one."""

    __slots__ = ("changed_ms", "counter", "state_version")

    def __init__(self, now: float, *, counter: int = 0, state_version: int = 0) -> None:
        self.changed_ms: int = int(now * 1000)
        self.counter: int = counter
        self.state_version: int = state_version

    def changed(self, now: float) -> None:
        """Count one more change."""
        self.counter += 1
        self.changed_ms = int(now * 1000)

    def to_json(self) -> dict[str, int]:
        return {"counter": self.counter, "stateVersion": self.state_version, "timestamp": self.changed_ms}

    @classmethod
    def from_json(cls, saved: object, fallback: DataVersion) -> DataVersion:
        """The saved version; the fallback when the file has none."""
        if not isinstance(saved, Mapping):
            return fallback
        fields: Mapping[str, Any] = saved
        return cls(
            int(fields.get("timestamp", fallback.changed_ms)) / 1000,
            counter=int(fields.get("counter", 0)),
            state_version=int(fields.get("stateVersion", 0)),
        )
