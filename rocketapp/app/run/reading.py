"""What holds for one app: its settings, the plugins that they choose, and its subscriptions with their policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any

from rocketapp.app.declare.phases import TwoPhases, declared_of
from rocketapp.app.settings.settings import Settings
from rocketapp.app.settings.sources import load_settings
from rocketapp.config.app import AppConfig
from rocketapp.errors import PluginError
from rocketapp.hooks.manager import Hook, Plugins
from rocketapp.model.handler_kind import kind_of
from rocketapp.model.policy import Override, Policy, unfit_for_concurrent
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
    settings = complete(app, settings)
    declared_of(app).registry.check_bindings()
    return policed_subscriptions(app, settings, declared_of(app).plugins)


def policed_subscriptions(app: TwoPhases, settings: Settings, plugins: Plugins) -> list[Subscription]:
    """Every subscription with its policy, as the code, the settings and these plugins say it. Raises as they do."""
    found = declared_of(app).registry.subscriptions(settings.app.group or app.name, settings.consumer)
    return with_policies(found, plugins, settings.options)


Options = Callable[[type[Any]], Any]
"""The class of a table of settings -> the table."""


def with_policies(subscriptions: Iterable[Subscription], plugins: Plugins, options: Options) -> list[Subscription]:
    """The subscriptions with their policies, and where these come from.

    Raises PluginError for an answer that a subscription cannot have.
    """
    hooks = plugins.hooks("failure_policy")
    found = [_completed(one, hooks, options) for one in subscriptions]
    _check_agreement(found)
    return found


def _completed(one: Subscription, hooks: list[Hook], options: Options) -> Subscription:
    """What the first answer in the order of plugins that is used makes of it."""
    for hook in hooks if kind_of(one).by_message else ():  # a polled call has neither a last attempt nor a breaker
        answer = hook.call(subscription=one, options=options)
        if answer is None or (isinstance(answer, Policy) and one.retry is not None):
            continue
        if not isinstance(answer, Policy | Override):
            raise _refused(hook, one, answer, "return a Policy, an Override, or None to decline")
        new = _with_answer(one, answer, f"plugin {hook.plugin}")
        problem = _problem(new)
        if problem is not None:
            raise _refused(hook, one, answer, problem)
        return new
    return one


def _with_answer(one: Subscription, answer: Policy | Override, plugin: str) -> Subscription:
    if isinstance(answer, Policy):
        return replace(one, retry=answer, retry_from=plugin)
    source = f"{answer.said_by} ({plugin})" if answer.said_by else plugin
    if answer.retry is not None:
        one = replace(one, retry=answer.retry, retry_from=source)
    if answer.retries is not None:
        one = replace(one, retries=answer.retries, retries_from=source)
    return one


def _problem(one: Subscription) -> str | None:
    """Why a subscription cannot have its policy or its retries, or None."""
    is_concurrent = not kind_of(one).in_order
    if isinstance(one.retries, bool) or not isinstance(one.retries, int) or one.retries < -1:
        return f"retries={one.retries!r}: give a whole number, 0 or more, or -1 for unlimited"
    if one.retries < 0 and is_concurrent:
        return "retries=-1 (unlimited) needs an orderly handler"
    return unfit_for_concurrent(one.retry) if is_concurrent and one.retry is not None else None


def _check_agreement(subscriptions: Iterable[Subscription]) -> None:
    """Retries belong to the queues of a topic: an answer for one of its handlers is one for all."""
    first: dict[tuple[str, str, str], Subscription] = {}
    for one in subscriptions:
        other = first.setdefault((one.cluster, one.group, one.topic), one)
        if one.retries != other.retries:
            told = (
                f"topic {one.topic!r} of group {one.group!r}: {one.handler_name} has retries={one.retries} "
                f"({one.retries_from}) and {other.handler_name} {other.retries} ({other.retries_from}): handlers of "
                "one topic and group agree in it"
            )
            raise PluginError("failure_policy", told)


def _refused(hook: Hook, one: Subscription, answer: object, problem: str) -> PluginError:
    if isinstance(answer, Override) and answer.said_by:
        return PluginError(hook.plugin, f"{answer.said_by} for {one.handler_name} ({one.place}): {problem}")
    return PluginError(
        hook.plugin, f"failure_policy for {one.handler_name} ({one.place}) returned {answer!r}: {problem}"
    )
