"""The declarations of one app, and its two phases: first everything is declared, then it runs.

`lifecycle`, the command line, plugins and tests read here what there is to run: the settings, the plugins that they
choose, and the subscriptions with their policies.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Protocol, TypeVar

from rocketapp.app.call.provided import Providers, instance_of
from rocketapp.app.call.transaction import Transaction
from rocketapp.app.declare.changes import LimitChange, TopicChange
from rocketapp.app.declare.declaration import Declaration
from rocketapp.app.declare.registry import TakenTopics
from rocketapp.app.payloads import Payloads, PluginCodec
from rocketapp.app.places import place_of_call
from rocketapp.app.publishing import Publisher, Publishing, Running
from rocketapp.app.settings import TABLES, Settings, check_tables, fields_of
from rocketapp.app.sources import load_settings
from rocketapp.app.user_code import HookFunction
from rocketapp.config.app import AppConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.errors import PluginError, SetupError
from rocketapp.hooks.finding import Found, choose, find
from rocketapp.hooks.hook_types import Codec
from rocketapp.hooks.manager import Plugins
from rocketapp.hooks.specs import PROJECT
from rocketapp.model.current_call import CURRENT_CALL
from rocketapp.model.names import group_problem
from rocketapp.model.subscription import Subscription
from rocketapp.model.topic import Topic
from rocketapp.wire.record import Message

T = TypeVar("T")


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


def _own_table(options: Any, app_name: str, place: str) -> tuple[str, type[Any]]:
    """The name of the app's own table, and its class. Raises SetupError."""
    named = options if isinstance(options, tuple) else (app_name.lower().replace("-", "_"), options)
    problem = _table_problem(named, {})
    if problem is not None:
        mend = 'a frozen dataclass whose fields are option(...), or ("table", TheClass)'
        raise SetupError(place, f"options={options!r}: {problem}: give {mend}")
    return named[0], named[1]


def _choice(config: AppConfig) -> tuple[tuple[str, ...], ...]:
    return config.plugins, config.disabled_plugins, config.plugin_order


def _methods(plugins: Plugins, app: object) -> dict[str, tuple[str, Callable[..., Any]]]:
    """What plugins add to the app: by name, each with its plugin. Raises PluginError for what cannot be added."""
    found: dict[str, tuple[str, Callable[..., Any]]] = {}
    for answer in plugins.ask("app_methods", app=app):
        given = answer.value
        if not isinstance(given, Mapping) or not all(isinstance(name, str) and callable(given[name]) for name in given):
            answer.refuse("functions by name")
        for name in given:
            if name in found or hasattr(type(app), name):
                owner = f"plugin {found[name][0]}" if name in found else type(app).__name__
                raise PluginError(answer.plugin, f"app_methods names {name!r}, which {owner} has already")
            if not name.isidentifier() or name.startswith("_"):
                raise PluginError(answer.plugin, f"app_methods names {name!r}, which is not a public name of a method")
        found.update((name, (answer.plugin, function)) for name, function in given.items())
    return found


def _check_clusters(clusters: Mapping[str, str], place: str) -> None:
    texts = [one for pair in clusters.items() for one in pair] if isinstance(clusters, Mapping) else [None]
    if not all(isinstance(one, str) and one for one in texts):
        raise SetupError(place, f"clusters={clusters!r}: give name servers by cluster name, {{'eu': 'host:port'}}")
    for cluster, address in clusters.items():
        from rocketapp.client.name_servers import name_server_problem

        if problem := name_server_problem(address):
            raise SetupError(place, f"clusters: {cluster!r}: {problem}")


class Declared:
    """The declarations of one app, and its plugins.

    pauses: calls of `pause` and `resume` before the start, in order.
    publishers: the topics of `app.publisher` declared before the start, each once.
    settings_in_use: the settings that the app runs with, while it does.
    providers: where handlers' arguments come from.
    handlers: the enabled handlers.
    """

    def __init__(
        self,
        name: str,
        *,
        clusters: Mapping[str, str],
        plugins: Iterable[object],
        container: object,
        version: str,
        settings: Mapping[str, Mapping[str, Any]],
        options: type[Any] | tuple[str, type[Any]] | None,
        place: str,
    ) -> None:
        problem = group_problem(name) if isinstance(name, str) else f"{name!r} is not a string"
        if problem is not None:
            raise SetupError(place, f"the app's name is a group's name as well: {problem}")
        _check_clusters(clusters, place)
        check_tables(settings, place)
        self.name: str = name
        self.place: str = place
        self.clusters: dict[str, str] = dict(clusters)
        self.container: Any = None
        self.lifecycle_hooks: list[HookFunction] = []
        self.pauses: list[TopicChange] = []
        self.publishers: list[Topic[Any]] = []
        self.transactions: list[Transaction[Any]] = []
        if container is not None:
            self.container = instance_of(container, place)
        self.payloads: Payloads = Payloads(lambda: self.codecs)
        self._own_table = own = None if options is None else _own_table(options, name, place)
        self.settings_in_use: Settings | None = None
        self.providers: Providers = Providers(
            self.container, own and own[1], self.options, lambda: self.plugins, self.payloads
        )
        self.handlers: list[Declaration] = []
        self._taken = TakenTopics()
        are_several = isinstance(plugins, Iterable) and not isinstance(plugins, str)
        self._plugin_objects: list[object] = list(plugins) if are_several else []
        if not are_several or any(isinstance(one, str) for one in self._plugin_objects):
            mend = "give a list of objects with hooks, [Plugin()]; names stand in app.plugins of the settings"
            raise SetupError(place, f"plugins={plugins!r}: {mend}")
        self._plugins_known: dict[str, object] = {}
        self._plugins_chosen_by = AppConfig()
        self._methods: dict[str, tuple[str, Callable[..., Any]]] | None = None
        self._methods_used: dict[str, str] = {}
        """Plugin -> the last of its methods that the app has used."""
        self._version, self._settings = version, settings
        self._kept: dict[type[Any], Any] = {}

    def add(self, declaration: Declaration) -> None:
        """Add a handler. Raises SetupError if it is wrong by itself or contradicts another; nothing is added then."""
        declaration.check()
        self.check_cluster(declaration.options.get("cluster"), declaration.place)
        if (publication := declaration.publication) is not None:
            self.check_cluster(publication.options.get("cluster"), publication.place, "publishes: ")
        one = declaration.read(self.providers).complete(self.name, ConsumerConfig())
        if one.enabled:
            self._taken.add(one.subscription)
            self.handlers.append(one)

    def check_cluster(self, cluster: str | None, place: str, what: str = "") -> None:
        """Raises SetupError unless this is a cluster of the app, or the unnamed one."""
        if cluster not in (None, "", *self.clusters):
            known = ", ".join(sorted(self.clusters)) or "none"
            raise SetupError(place, f"{what}cluster={cluster!r} is unknown: RocketApp(clusters=...) names {known}")

    def subscribed(self, group: str, consumer: ConsumerConfig) -> list[Declaration]:
        """Every enabled handler with its complete subscription. `group` is for those that name none.

        Raises SetupError for handlers that contradict each other.
        """
        found, taken = [one.complete(group, consumer) for one in self.handlers], TakenTopics()
        for one in found:
            taken.add(one.subscription)
        return found

    def kept(self, kind: type[T]) -> T:
        """The one object of this class that belongs to the app; created by the first call."""
        found: T = self._kept.setdefault(kind, kind())
        return found

    def tell_made(self, app: object) -> None:
        """Call the hook `app_made` of the plugins given in code. Others are found only later."""
        for place, plugin in enumerate(self._plugin_objects):
            if hasattr(getattr(plugin, "app_made", None), f"{PROJECT}_impl"):
                made: Any = plugin() if isinstance(plugin, type) else plugin
                self._plugin_objects[place] = made
                made.app_made(app)

    def choose_plugins(self, config: AppConfig) -> None:
        """Take the plugins that the settings name, and leave out those that they disable.

        Without this, at the first look, all that are installed or given in code. Raises ConfigError for a name of no
        plugin, and PluginError for a disabled one whose methods the app has used.
        """
        if _choice(config) == _choice(self._plugins_chosen_by):
            return
        left_out = sorted(self._methods_used.keys() & set(config.disabled_plugins))
        if left_out:
            method = self._methods_used[left_out[0]]
            raise PluginError(
                left_out[0], f"is disabled (app.disabled_plugins), and app.{method} is its method: use one"
            )
        self._plugins_chosen_by = config
        for cached in ("plugins", "tables", "codecs"):
            self.__dict__.pop(cached, None)
        self.payloads.forget_plugins()
        # What fills arguments is found anew at the start.
        self.handlers = [replace(one, arguments=None) for one in self.handlers]

    def found_plugins(self, config: AppConfig) -> list[Found]:
        """Every plugin that there is, also the disabled ones, in the order of finding them."""
        return find(self._plugin_objects, config.plugins)

    @property
    def disabled_plugins(self) -> frozenset[str]:
        """Names of plugins that the settings leave out."""
        return frozenset(self._plugins_chosen_by.disabled_plugins)

    def uses_unnamed_cluster(self, subscribed: Iterable[str]) -> bool:
        """Whether the app needs the unnamed cluster: not if every subscription and transaction names one.

        `subscribed`: the clusters of its subscriptions.
        """
        return not self.clusters or not all((*subscribed, *(one.cluster for one in self.transactions)))

    @cached_property
    def plugins(self) -> Plugins:
        """Found and registered at the first look. Raises PluginError."""
        plugins = Plugins()
        config = self._plugins_chosen_by
        for found in choose(self.found_plugins(config), config):
            if found.name in self._plugins_known:
                plugins.register(self._plugins_known[found.name], found.name)
            else:
                plugins.add(found)
                # The same object for the whole life of the app, also when the settings make another choice.
                self._plugins_known[found.name] = plugins.plugin(found.name)
        return plugins

    @cached_property
    def codecs(self) -> tuple[Codec, ...]:
        """The codecs of plugins. Raises PluginError."""
        answers = self.plugins.ask("payload_codec")
        for answer in answers:
            if any(not hasattr(answer.value, name) for name in ("content_type", "claims", "decoder", "encode")):
                answer.refuse("a Codec")
        return tuple(PluginCodec(answer.value, answer.plugin) for answer in answers)

    def method(self, name: str, app: object) -> Callable[..., Any] | None:
        """The method that a plugin adds to the app under this name, or None. Raises PluginError."""
        if self._methods is None:
            self._methods = _methods(self.plugins, app)
        plugin, method = self._methods.get(name, ("", None))
        if plugin not in self.plugins.names():  # the settings may have disabled it since
            return None
        self._methods_used[plugin] = name
        return method

    @cached_property
    def tables(self) -> dict[str, type[Any]]:
        """The settings tables of the app and of plugins, by name. Raises PluginError."""
        tables: dict[str, type[Any]] = dict([self._own_table] if self._own_table is not None else [])
        for answer in self.plugins.ask("options"):
            problem = _table_problem(answer.value, tables)
            if problem is not None:
                raise PluginError(answer.plugin, f"options returned {answer.value!r}: {problem}")
            name, kind = answer.value
            tables[name] = kind
        return tables

    def options(self, kind: type[T]) -> T:
        """A table of the settings in use. Raises SetupError while the app does not run, and for an unknown class."""
        if self.settings_in_use is None:
            raise SetupError(place_of_call(), f"app {self.name!r} is not running: its settings are read when it starts")
        try:
            return self.settings_in_use.options(kind)
        except LookupError as error:
            raise SetupError(place_of_call(), str(error)) from None

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """Options given in code: above the defaults, below everything else."""
        tables = {table: dict(options) for table, options in self._settings.items()}
        if self._version:
            tables.setdefault("app", {})["version"] = self._version
        return tables


class RunningApp(Running, Protocol):
    """The running part of an app, between start and stop."""

    def handles(self, subscription: Subscription) -> bool:
        """Whether this subscription is one of this app, not of another in the same process."""

    def change(self, change: TopicChange) -> None:
        """Pause, resume or adjust. Raises SetupError. May be called from any thread."""


class TwoPhases(Publisher):
    """An app: its declarations, and its running part while it runs."""

    def __init__(self, declared: Declared) -> None:
        self.name: str = declared.name
        self._declared = declared
        self._running: RunningApp | None = None
        self._publishing = Publishing(self._must_run, payloads=declared.payloads)

    def _check_complete(self) -> None:
        """Raise SetupError for a declaration that lacks its other half."""

    def _alive(self) -> RunningApp | None:
        """The running part, unless its event loop was closed: then it can never stop in order.

        While a handler is tried, its substitute.
        """
        instead = _INSTEAD.get()
        if instead is not None and instead[0] is self:
            return instead[1]
        running = self._running
        return None if running is None or running.loop.is_closed() else running

    def _change(self, change: TopicChange) -> None:
        if (running := self._alive()) is not None:
            running.change(change)
        elif isinstance(change, LimitChange):
            change.refuse(
                f"app {self.name!r} is not running: set limits in the settings, or at subscribe, before it starts"
            )
        else:
            self._declared.pauses.append(change)

    def _may_declare(self, what: str) -> None:
        if self._alive() is not None:
            raise SetupError(
                place_of_call(), f"{what} came when app {self.name!r} had started: declare everything before it runs"
            )

    def _through(self) -> Publishing:
        """In a handler of this app what follows the handled message, as its Publisher does."""
        at_work, running = CURRENT_CALL.get(), self._alive()
        found = None if at_work is None or running is None else at_work()
        if found is None or running is None or not running.handles(found[0]):
            return self._publishing
        subscription, item = found
        own = self._publishing.to(subscription.cluster)
        return own.following(item) if isinstance(item, Message) else own

    def _must_run(self) -> RunningApp:
        running = self._alive()
        if running is None:
            raise SetupError(
                place_of_call(),
                f"app {self.name!r} is not running: publish from handlers, on_startup or on_shutdown functions, "
                "or inside `async with app:`",
            )
        return running


_INSTEAD: ContextVar[tuple[TwoPhases, RunningApp] | None] = ContextVar("rocketapp.instead", default=None)


@contextmanager
def standing_in(app: TwoPhases, running: RunningApp) -> Iterator[None]:
    """Context manager in which `running` replaces the app's running part, also in tasks and threads started inside."""
    before = _INSTEAD.set((app, running))
    try:
        yield
    finally:
        _INSTEAD.reset(before)


def declared_of(app: TwoPhases) -> Declared:
    """The declarations of an app: for lifecycle, the command line and the testing kit, not for users."""
    return app._declared


def publishing_of(app: TwoPhases) -> Publishing:
    """What publishes for an app: its running part, or the substitute."""
    return app._publishing


def is_running(app: TwoPhases) -> bool:
    """Whether the app has been started and not stopped."""
    return app._running is not None


def loop_of(app: TwoPhases) -> asyncio.AbstractEventLoop:
    """The event loop of a running app. Raises SetupError while it does not run."""
    return app._must_run().loop


def begin(app: TwoPhases, running: RunningApp, settings: Settings) -> None:
    """The app runs: publishing works, these settings are in use, and nothing more can be declared.

    A previous run whose event loop was closed is over. Raises SetupError when the app runs already, and for an
    incomplete declaration.
    """
    if app._alive() is not None:
        raise SetupError(place_of_call(), f"app {app.name!r} is running already: stop it first")
    app._check_complete()
    app._running = running
    app._declared.settings_in_use = settings


def end(app: TwoPhases) -> None:
    """The app does not run any more."""
    app._running = app._declared.settings_in_use = None


_NONE: Mapping[str, Mapping[str, Any]] = MappingProxyType({})


def read_settings(
    app: TwoPhases,
    environ: Mapping[str, str],
    *,
    file: str | None = None,
    overrides: Mapping[str, Mapping[str, Any]] = _NONE,
) -> Settings:
    """The settings of an app whose modules are imported. Raises ConfigError, PluginError and SetupError.

    They are read twice: which plugins there are is a setting, and the plugins bring tables of their own.
    """
    declared = declared_of(app)
    load = partial(load_settings, file, overrides, environ, declared.settings, code_place=declared.place)
    declared.choose_plugins(load(only_known=True).app)
    return load(tables=declared.tables, passed_over=declared.disabled_plugins)


def complete(app: TwoPhases, settings: Settings) -> Settings:
    """These settings, with the defaults of tables that are missing: for settings made in code.

    Registers the plugins that the settings choose. Raises PluginError.
    """
    declared = declared_of(app)
    declared.choose_plugins(settings.app)
    missing = {name: kind() for name, kind in declared.tables.items() if name not in settings.plugins}
    return replace(settings, plugins={**settings.plugins, **missing}) if missing else settings


def handlers_of(app: TwoPhases, settings: Settings) -> list[Declaration]:
    """Every handler, complete with settings and with all arguments known.

    Raises SetupError for handlers that contradict each other and for an annotation that names nothing.
    """
    settings, declared = complete(app, settings), declared_of(app)
    found = declared.subscribed(settings.app.group or app.name, settings.consumer)
    return [one.resolved(declared.providers) for one in found]
