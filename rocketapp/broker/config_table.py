"""Configurations by name, as topics and groups have them: one frozen value each, replaced as a whole.

`dirty` says that the table differs from its file, so that a change is on disk before anybody is told of it,
and an idle broker writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

from rocketapp.broker.data_version import DataVersion


class Named(Protocol):
    """A configuration knows whose it is."""

    @property
    def name(self) -> str: ...


Config = TypeVar("Config", bound=Named)


class ConfigTable(Generic[Config]):
    """What topics and groups have in common; the saved form is their own."""

    def __init__(self, version: DataVersion) -> None:
        self._version = version
        self._configs: dict[str, Config] = {}
        self.dirty = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._configs)}>"

    def __iter__(self) -> Iterator[Config]:
        return iter(self._configs.values())

    def get(self, name: str) -> Config | None:
        return self._configs.get(name)

    def put(self, config: Config) -> None:
        """Create or replace one."""
        if self._configs.get(config.name) != config:
            self._configs[config.name] = config
            self.dirty = True

    def delete(self, name: str) -> None:
        if self._configs.pop(name, None) is not None:
            self.dirty = True

    def snapshot(self) -> Mapping[str, Config]:
        """What `restore` takes back."""
        return dict(self._configs)

    def restore(self, snapshot: Mapping[str, Config]) -> None:
        """The changes since then did not happen. The file may have seen them: it is written again."""
        if self._configs != snapshot:
            self._configs = dict(snapshot)
            self.dirty = True

    def count_change(self, now: float) -> None:
        """Raise the version: what follows is another state than the last one that was saved."""
        self._version.changed(now)
