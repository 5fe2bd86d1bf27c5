"""Registers plugins, calls their hooks, and names the plugin in errors.

A plugin that fails stops the start: an app without one of its plugins is a different app. Whose code raised is looked
up only after a failure, so that it costs nothing before.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from traceback import walk_tb
from types import CodeType
from typing import Any, NoReturn

import pluggy

from rocketapp.errors import PluginError, RocketAppError, did_you_mean
from rocketapp.hooks import specs
from rocketapp.hooks.finding import Found, name_of
from rocketapp.hooks.specs import PROJECT

_SEE = "see docs/reference/hooks.md"


@dataclass(frozen=True, slots=True)
class HookResult:
    """What one plugin returned from one hook; never None."""

    plugin: str
    value: Any
    hook: str = ""

    def refuse(self, wanted: str) -> NoReturn:
        """Raises PluginError: the hook does not accept this answer."""
        raise PluginError(self.plugin, f"{self.hook} returned {self.value!r}: return {wanted}, or None to decline")

    def around(self, build: Callable[[Any], Any], call: Any) -> Any:
        """The callable that the plugin's wrapper builds. Raises PluginError for one that cannot be called."""
        try:
            built = build(call)
        except Exception as error:
            problem = f"{self.hook}: its wrapper raised {type(error).__name__}: {error}"
            raise PluginError(self.plugin, problem) from error
        if not callable(built):
            raise PluginError(self.plugin, f"{self.hook}: its wrapper built {built!r}, which cannot be called")
        return built


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook of one plugin."""

    plugin: str
    name: str
    function: Callable[..., Any]
    arguments: tuple[str, ...]
    """The arguments it asks for: any part of what the hook offers."""

    def call(self, **offered: Any) -> Any:
        """Call the hook. What it raises becomes a PluginError."""
        try:
            return self.function(*(offered[name] for name in self.arguments))
        except RocketAppError:
            raise
        except (Exception, SystemExit) as error:
            raise self.failed(error) from error

    def failed(self, error: BaseException) -> PluginError:
        return PluginError(self.plugin, f"{self.name} raised {type(error).__name__}: {error}", self.name)


class _Registry(pluggy.PluginManager):
    """Leaves out Python's own names, which are most of a plugin's: pluggy looks at each of them for long."""

    def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
        return None if name.startswith("__") else super().parse_hookimpl_opts(plugin, name)


class Plugins:
    """The plugins of one app, in the order of registration."""

    def __init__(self) -> None:
        self._pluggy = _Registry(PROJECT)
        self._pluggy.add_hookspecs(specs)
        self._order: list[str] = []

    def add(self, found: Found) -> None:
        """Import a plugin and register it."""
        try:
            plugin = found.load()
        except (Exception, SystemExit) as error:
            where = found.module if found.origin == "entry point" else found.name
            problem = f"{where} could not be loaded: {type(error).__name__}: {error}"
            raise PluginError(found.name, problem) from error
        self.register(plugin, found.name)

    def register(self, plugin: object, name: str = "") -> None:
        """Add one plugin: a module or an object; a class is instantiated, so that each app has its own."""
        name = name or name_of(plugin)
        if name in self._order:
            raise PluginError(
                name, "is registered twice: give one of the two an attribute `name` of its own, or remove it"
            )
        try:
            plugin = plugin() if inspect.isclass(plugin) else plugin
            self._pluggy.register(plugin, name)
        except (Exception, SystemExit) as error:
            see = f": {_SEE}" if isinstance(error, pluggy.PluginValidationError) else ""
            raise PluginError(name, _first_line(error) + see) from error
        hooks = self._pluggy.get_hookcallers(plugin) or []
        # Not pluggy's check_pending: it would blame the next plugins for the misspelt hook of this one.
        if unknown := min((hook.name for hook in hooks if not hook.has_spec()), default=""):
            self._pluggy.unregister(plugin)
            known = [name for name, hook in vars(self._pluggy.hook).items() if hook.has_spec()]
            raise PluginError(name, f"unknown hook {unknown}{did_you_mean(unknown, known)}")
        self._order.append(name)
        if not hooks:
            raise PluginError(name, f"has no hook: mark its functions with @hookimpl ({_SEE})")

    def joined_by(self, plugins: Iterable[object]) -> Plugins:
        """These plugins followed by more, for one run; this object stays as it is."""
        joined = Plugins()
        for name in self._order:
            joined.register(self._pluggy.get_plugin(name), name)
        for plugin in plugins:
            joined.register(plugin)
        return joined

    def hooks(self, hook: str) -> list[Hook]:
        """The implementations of one hook, in order of registration.

        pluggy's `trylast` moves a plugin to the front: for publish wrappers, next to the producer.
        """
        found = []
        for one in getattr(self._pluggy.hook, hook).get_hookimpls():
            if one.hookwrapper or one.wrapper:
                raise PluginError(
                    one.plugin_name, f"{hook} is a pluggy wrapper: hooks are called one by one, return a value"
                )
            found.append(Hook(one.plugin_name, hook, one.function, tuple(one.argnames)))
        return found

    def ask(self, hook: str, **arguments: Any) -> list[HookResult]:
        """Call a hook of every plugin; answers of None are left out."""
        answers = (HookResult(one.plugin, one.call(**arguments), hook) for one in self.hooks(hook))
        return [answer for answer in answers if answer.value is not None]

    def ask_for_functions(self, hook: str, **arguments: Any) -> list[HookResult]:
        """As `ask`, for a hook that returns functions. Raises PluginError for another answer."""
        answers = self.ask(hook, **arguments)
        for answer in answers:
            if not callable(answer.value):
                answer.refuse("a function")
        return answers

    def plugin(self, name: str) -> object:
        """The registered plugin with this name."""
        found: object = self._pluggy.get_plugin(name)
        return found

    def hooks_of(self, name: str) -> tuple[str, ...]:
        """The hooks of one plugin, in alphabetical order."""
        plugin = self._pluggy.get_plugin(name)
        callers = self._pluggy.get_hookcallers(plugin) if plugin is not None else None
        return tuple(sorted(caller.name for caller in callers or ()))

    def names(self) -> tuple[str, ...]:
        """Every plugin, in the order of registration."""
        return tuple(self._order)


def _first_line(error: BaseException) -> str:
    """Pluggy's errors go over many lines and repeat the plugin's name in the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: " + " ".join(lines)


def code_of(call: Any) -> CodeType | None:
    """The code object that runs when this is called; None if it is not Python's."""
    while isinstance(call, functools.partial):
        call = call.func
    call = getattr(call, "__func__", call)
    if not hasattr(call, "__code__"):
        call = vars(type(call)).get("__call__")
    code = getattr(call, "__code__", None)
    return code if isinstance(code, CodeType) else None


def raised_by(error: BaseException, owners: Mapping[CodeType, str]) -> str:
    """The owner of the innermost running code that has one; empty if none has."""
    found = ""
    for frame, _ in walk_tb(error.__traceback__):
        found = owners.get(frame.f_code, found)
    return found
