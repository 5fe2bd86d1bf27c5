"""The version of a table: a count of its changes, as in Apache's DataVersion. Apache's tools compare it."""

from __future__ import annotations

import msgspec


class DataVersion(msgspec.Struct, rename="camel"):
    """A counter of changes and the time of the last one, in milliseconds since 1970."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0

    def changed(self, now: float) -> None:
        """Count one more change."""
        self.counter += 1
        self.timestamp = int(now * 1000)

    def to_json(self) -> dict[str, int]:
        fields: dict[str, int] = msgspec.to_builtins(self)
        return fields

    @classmethod
    def from_json(cls, saved: object, fallback: DataVersion) -> DataVersion:
        """The saved version; the fallback when the file has none."""
        try:
            return msgspec.convert(saved, cls, strict=False)
        except msgspec.ValidationError:
            return fallback
