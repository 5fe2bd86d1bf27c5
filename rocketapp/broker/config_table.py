"""Configurations by name, for topics and groups. Each is one frozen value, replaced as a whole.

`dirty` means that the table differs from its file. A change is written before it is announced to clients, and
an idle broker writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from rocketapp.broker.data_version import DataVersion


class Named(Protocol):
    """A configuration that has a name."""

    @property
    def name(self) -> str: ...


Config = TypeVar("Config", bound=Named)


class ConfigTable(Generic[Config]):
    """The common part of the topic and group tables. Subclasses define the saved form."""

    def __init__(self, version: DataVersion) -> None:
        self._version = version
        self._configs: dict[str, Config] = {}
        self.dirty: bool = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._configs)}>"

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[Config]:
        return iter(self._configs.values())

    def get(self, name: str) -> Config | None:
        return self._configs.get(name)

    def put(self, config: Config) -> None:
        """Create or replace a configuration."""
        if self._configs.get(config.name) != config:
            self._configs[config.name] = config
            self.dirty = True

    def delete(self, name: str) -> None:
        if self._configs.pop(name, None) is not None:
            self.dirty = True

    def snapshot(self) -> Mapping[str, Config]:
        """A copy of the table for `restore`."""
        return dict(self._configs)

    def restore(self, snapshot: Mapping[str, Config]) -> None:
        """Undo the changes since the snapshot. The file may contain them already, so it is written again."""
        if self._configs != snapshot:
            self._configs = dict(snapshot)
            self.dirty = True

    def count_change(self, now: float) -> None:
        """Raise the data version, because the next saved state differs from the last one."""
        self._version.changed(now)
