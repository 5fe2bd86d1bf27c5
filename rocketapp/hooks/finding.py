"""Finds plugins, selects the wanted ones, and orders them.

They are found by entry point, named by the settings, or given in code. Disabled ones are not even imported.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from rocketapp.config.app import AppConfig
from rocketapp.errors import ConfigError
from rocketapp.hooks.specs import PROJECT

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints


BY_ENTRY_POINT, BY_SETTINGS, IN_CODE = "entry point", "settings", "code"


@dataclass(frozen=True, slots=True)
class Found:
    """A plugin that was found and may be registered."""

    name: str
    load: Callable[[], object]
    """Imports it; raises what that raises."""
    origin: str
    """`entry point`, `settings` or `code`."""
    module: str
    """Where it is defined, or said to be."""
    distribution: Any = None
    """Its `importlib.metadata.Distribution`, where the entry point tells it."""


def find(
    objects: Iterable[object] = (), paths: Iterable[str] = (), entry_points: Iterable[EntryPoint] | None = None
) -> list[Found]:
    """rocketapp's own plugins, those of other distributions by name, those named by settings, and those given in code.

    objects: given in code; one whose class an entry point names replaces it and takes its name.
    paths: `module` or `module:attribute`.
    entry_points: None reads those of the environment.
    """
    points = installed(PROJECT) if entry_points is None else entry_points
    given, found = list(objects), []
    for point in sorted(points, key=_built_in_first):
        own = next((one for one in given if name_of(one) == point.value.replace(":", ".")), None)
        if own is None:
            found.append(Found(point.name, point.load, BY_ENTRY_POINT, point.module, point.dist))
        else:
            given = [one for one in given if one is not own]
            found.append(Found(point.name, partial(_itself, own), IN_CODE, point.module, point.dist))
    return [
        *found,
        *(Found(path, partial(_import, path), BY_SETTINGS, path.partition(":")[0]) for path in paths),
        *(Found(name_of(one), partial(_itself, one), IN_CODE, _module_of(one)) for one in given),
    ]


def choose(found: Sequence[Found], config: AppConfig) -> list[Found]:
    """The plugins that are not disabled, in order of registration. Raises ConfigError for an unknown name."""
    names = [one.name for one in found]
    for option, given in (("disabled_plugins", config.disabled_plugins), ("plugin_order", config.plugin_order)):
        for name in given:
            if name not in names:
                raise ConfigError(f"app.{option}", f"no plugin is called {name!r}: there are {', '.join(names)}")
    wanted = [one for one in found if one.name not in config.disabled_plugins]
    # Stable: those that the order does not name come first, as they were found.
    places = {name: place for place, name in enumerate(config.plugin_order)}
    return sorted(wanted, key=lambda one: places.get(one.name, -1))


def name_of(plugin: object) -> str:
    """The name of a plugin without an entry point: its attribute `name`, or its class."""
    if inspect.ismodule(plugin):
        return plugin.__name__
    name = None if inspect.isclass(plugin) else getattr(plugin, "name", None)
    if isinstance(name, str) and name:
        return name
    kind = plugin if inspect.isclass(plugin) else type(plugin)
    return f"{kind.__module__}.{kind.__qualname__}"


def _module_of(plugin: object) -> str:
    return plugin.__name__ if inspect.ismodule(plugin) else str(getattr(plugin, "__module__", ""))


def _built_in_first(entry_point: EntryPoint) -> tuple[bool, str]:
    return (not entry_point.value.startswith("rocketapp.plugins."), entry_point.name)


def _import(path: str) -> object:
    module, _, attribute = path.partition(":")
    found: object = importlib.import_module(module)
    for name in filter(None, attribute.split(".")):
        found = getattr(found, name)
    return found


def _itself(plugin: object) -> object:
    return plugin


def installed(group: str) -> EntryPoints:
    """The entry points of one group: read once per process, for plugins and for their commands.

    Reading them opens a file of every distribution. A process that puts another folder on `sys.path` reads them anew;
    one that is installed meanwhile is found by the next process.
    """
    return _read(group, tuple(sys.path))


@lru_cache(maxsize=2)  # plugins and their commands
def _read(group: str, path: tuple[str, ...]) -> EntryPoints:
    from importlib.metadata import entry_points as read  # it takes 10 ms to import, and `import rocketapp` does without

    return read(group=group)
