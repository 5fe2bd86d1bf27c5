"""Configurations by name, for topics and groups. Each is one frozen value, replaced as a whole.

`dirty` means that the table differs from its file. Nobody is answered before a change is written, and an idle broker
writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from rocketapp.broker.store.config_files import DataVersion


class Named(Protocol):
    """A configuration that has a name."""

    @property
    def name(self) -> str: ...

    def to_json(self) -> Mapping[str, Any]: ...


Config = TypeVar("Config", bound=Named)


class ConfigTable(Generic[Config]):
    """The topics, or the groups."""

    def __init__(self, member: str, from_json: Callable[[object], Config], system: Iterable[Config]) -> None:
        """`member`: the one of the saved form that has them. `from_json`: reads one, or raises ValueError."""
        self._member, self._from_json = member, from_json
        self._also: dict[str, Any] = {}
        """Other tables of the saved form, which are kept as they are."""
        self._version = DataVersion()
        self._configs: dict[str, Config] = {config.name: config for config in system}
        self._changed: dict[str, Config | None] = {}
        """What was there of each name that has changed since the last save."""
        self._begun: dict[str, Config | None] = {}
        """The same of those that are in the save under way."""
        self.dirty: bool = True

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._configs)}>"

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[Config]:
        return iter(self._configs.values())

    @property
    def by_name(self) -> Mapping[str, Config]:
        """The configurations that are there now."""
        return self._configs

    def get(self, name: str) -> Config | None:
        return self._configs.get(name)

    def is_written(self, name: str) -> bool:
        """Whether its present configuration, or that it has none, is on disk."""
        return name not in self._changed and name not in self._begun

    def put(self, config: Config) -> None:
        """Create or replace a configuration."""
        if self._configs.get(config.name) != config:
            self._note(config.name, self._configs.get(config.name))
            self._configs[config.name] = config

    def delete(self, name: str) -> None:
        config = self._configs.pop(name, None)
        if config is not None:
            self._note(name, config)

    def _note(self, name: str, before: Config | None) -> None:
        self._changed.setdefault(name, before)
        self.dirty = True

    @property
    def version(self) -> dict[str, int]:
        """Another one after each change."""
        return self._version.to_json()

    def take_over(self, saved: Mapping[str, Any]) -> None:
        """Become the table of another broker, in its saved form. Raises ValueError when it is not one."""
        found = self._read(saved)
        for name in self._configs.keys() - found.keys():
            self.delete(name)
        for config in found.values():
            self.put(config)
        self.dirty = True

    def load(self, saved: Mapping[str, Any]) -> None:
        """Load a saved form in addition to what is there. Raises ValueError when it is not one."""
        self.dirty = False
        self._configs |= self._read(saved)

    def _read(self, saved: Mapping[str, Any]) -> dict[str, Config]:
        """The configurations of a saved form, whose other members are taken over."""
        table = saved.get(self._member)
        if not isinstance(table, Mapping):
            raise ValueError(f"no {self._member} in it")
        found = {config.name: config for config in map(self._from_json, table.values())}
        for name in self._also:
            if isinstance(saved.get(name), Mapping):
                self._also[name] = saved[name]
        self._version = DataVersion.from_json(saved.get("dataVersion"), self._version)
        return found

    def to_json(self) -> dict[str, Any]:
        """The present saved form."""
        return self._form(self._configs, self._version.to_json())

    def _form(self, configs: Mapping[str, Config | None], version: dict[str, int]) -> dict[str, Any]:
        """The saved form of these configurations, made in any thread; None for one that is gone."""
        table = {name: None if config is None else config.to_json() for name, config in configs.items()}
        return {"dataVersion": version, self._member: table, **self._also}

    def begin_save(self, now: float, *, whole: bool = True) -> Callable[[], dict[str, Any]]:
        """Count a change, if there is one; return what makes the saved form of the present table, in any thread.

        `whole`: or of what has changed since the last save. `written` follows when it is on disk, or `undo`.
        """
        if self.dirty:
            self._version.changed(now)
        self.dirty = False
        self._begun, self._changed = self._changed, {}
        configs = dict(self._configs) if whole else {name: self._configs.get(name) for name in self._begun}
        version = self._version.to_json()
        return lambda: self._form(configs, version)

    def written(self) -> None:
        """What was saved last is on disk."""
        self._begun = {}

    def undo(self) -> None:
        """Take back what is not on disk. The file may contain a part of it already, so it is written again."""
        for changed in (self._changed, self._begun):
            for name, before in changed.items():
                if before is None:
                    self._configs.pop(name, None)
                else:
                    self._configs[name] = before
            changed.clear()
        self.dirty = True
