"""Everything that was declared on one app: what `lifecycle`, the command line and tests read."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from rocketapp.app.declare.lifecycle_hooks import HookFunction
from rocketapp.app.declare.registry import Registry
from rocketapp.app.settings.settings import TABLES
from rocketapp.app.settings.values import fields_of
from rocketapp.errors import ConfigError, PluginError, SetupError
from rocketapp.hooks.manager import Plugins
from rocketapp.model.names import group_problem


def _table_problem(answer: Any, taken: Mapping[str, type[Any]]) -> str | None:
    """Why this is not a table of options, or None."""
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], str)):
        return "return (table name, dataclass)"
    name, kind = answer
    if name in TABLES or name in taken:
        return f"table [{name}] is taken"
    if not name.isidentifier() or name != name.lower() or "__" in name:
        return f"{name!r} is not a table's name: lower-case letters, digits and single underscores"
    if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        return "the options are a frozen dataclass"
    try:
        fields_of(kind)
    except TypeError as error:
        return str(error)
    return None


def _check_clusters(clusters: object, place: str) -> None:
    if not isinstance(clusters, Mapping):
        raise SetupError(place, f"clusters={clusters!r}: give name servers by cluster name, {{'eu': 'host:port'}}")
    for cluster, address in clusters.items():
        if not (isinstance(cluster, str) and cluster and isinstance(address, str) and address):
            raise SetupError(
                place, f"clusters={dict(clusters)!r}: each needs a name and the addresses of its name servers"
            )
        from rocketapp.client.name_servers import parse_name_servers

        try:
            parse_name_servers(address)
        except ConfigError as error:
            raise SetupError(place, f"clusters: {cluster!r}: {error}") from None


class Declared:
    """The declarations of one app and the plugins that serve it."""

    def __init__(
        self,
        name: str,
        *,
        clusters: Mapping[str, str],
        plugins: tuple[object, ...],
        container: object,
        version: str,
        settings: Mapping[str, Mapping[str, Any]],
        place: str,
    ) -> None:
        problem = group_problem(name) if isinstance(name, str) else f"{name!r} is not a string"
        if problem is not None:
            raise SetupError(place, f"the app's name is a group's name as well: {problem}")
        _check_clusters(clusters, place)
        if not isinstance(settings, Mapping) or not all(isinstance(table, Mapping) for table in settings.values()):
            raise SetupError(place, f"settings={settings!r}: give options by table, {{'consumer': {{'threads': 40}}}}")
        self.name, self.place = name, place
        self.clusters = dict(clusters)
        self.container: Any = None
        self.lifecycle_hooks: list[HookFunction] = []
        providers = None
        if container is not None:
            from rocketapp.app.inject.providers import ContainerProviders, instance_of

            self.container = instance_of(container, place)
            providers = ContainerProviders(self.container)
        self.registry = Registry(name, clusters, providers)
        self._plugin_objects = plugins
        self._version, self._settings = version, settings

    @cached_property
    def plugins(self) -> Plugins:
        """Found and registered at the first look. Raises PluginError."""
        plugins = Plugins()
        plugins.load()
        for plugin in self._plugin_objects:
            plugins.register(plugin)
        return plugins

    @cached_property
    def tables(self) -> dict[str, type[Any]]:
        """The tables of settings that plugins declare. Raises PluginError."""
        tables: dict[str, type[Any]] = {}
        for answer in self.plugins.ask("options"):
            problem = _table_problem(answer.value, tables)
            if problem is not None:
                raise PluginError(answer.plugin, f"options returned {answer.value!r}: {problem}")
            name, kind = answer.value
            tables[name] = kind
        return tables

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Options given in code: above the defaults, below everything else."""
        tables = {table: dict(options) for table, options in self._settings.items()}
        if self._version:
            tables.setdefault("app", {})["version"] = self._version
        return tables
