"""The settings of an app, and the plugins that they choose."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from rocketapp.app.call.policies import with_policies
from rocketapp.app.declare.phases import TwoPhases, declared_of
from rocketapp.app.settings.settings import Settings
from rocketapp.app.settings.sources import load_settings
from rocketapp.config.app import AppConfig
from rocketapp.model.subscription import Subscription

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
    prepare(app, load(only_known=True).app)
    return load(tables=declared.tables, passed_over=declared.disabled_plugins)


def prepare(app: TwoPhases, config: AppConfig) -> None:
    """Choose the plugins of an app and let them declare what they like, once."""
    declared = declared_of(app)
    declared.choose_plugins(config)
    declared.configure(app)


def complete(app: TwoPhases, settings: Settings) -> Settings:
    """The same, with the defaults of every table that was not read: for settings that were made in code."""
    missing = {name: kind() for name, kind in declared_of(app).tables.items() if name not in settings.plugins}
    return replace(settings, plugins={**settings.plugins, **missing}) if missing else settings


def subscriptions_of(app: TwoPhases, settings: Settings) -> list[Subscription]:
    """Every subscription, complete and with its policy, of a handler whose arguments are all known.

    Raises SetupError for those that contradict each other and for an annotation that names nothing, PluginError for
    what a plugin answers.
    """
    declared = declared_of(app)
    settings = complete(app, settings)
    declared.registry.check_bindings()
    found = declared.registry.subscriptions(settings.app.group or app.name, settings.consumer)
    return with_policies(found, declared.plugins, settings.options)
