"""`rocketapp routes`, `config` and `plugins`: what an app declares, shown without starting it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import packages_distributions, version
from itertools import chain
from typing import Any

import click

from rocketapp.app.app import RocketApp
from rocketapp.app.declare.phases import complete, declared_of, publishing_of
from rocketapp.app.run.surface import AppSurface
from rocketapp.app.settings import Settings
from rocketapp.cli.failure import DONE, USAGE, one_line, shown_path
from rocketapp.cli.loader import load_app, put_current_directory_on_path
from rocketapp.cli.options import app_command, command_settings, json_option, settings_option, traceback_option
from rocketapp.cli.output import show
from rocketapp.cli.settings import subscriptions_of
from rocketapp.clock import SystemClock
from rocketapp.config.option import info_of
from rocketapp.errors import PluginError
from rocketapp.hooks.finding import Found, choose, find
from rocketapp.hooks.manager import Plugins
from rocketapp.model.subscription import Subscription
from rocketapp.model.subscription_words import (
    describe_breaker,
    describe_failures,
    describe_outcome,
    describe_outcomes,
    describe_run,
    describe_tags,
    filter_name,
    idempotency_key,
    key_name,
)
from rocketapp.transport.http_get import shown_url

_HERE = ("", "handler", "consumer.retries", "broadcast")
"""Sources that need no mention: the handler's own declaration, and the usual settings."""
HIDDEN = "********"


@click.command("routes", epilog="Example: rocketapp routes app:app")
@json_option
@app_command
def routes_command(*, app: RocketApp, settings: Settings, as_json: bool) -> int:
    """Show what APP subscribes, and how failures go."""
    subscriptions, suspend = subscriptions_of(app, settings), settings.consumer.suspend
    document = [route_of(one, suspend=suspend) for one in subscriptions]
    return show(document, describe_routes(subscriptions, suspend=suspend), as_json=as_json)


def describe_routes(subscriptions: Sequence[Subscription], *, suspend: float) -> Iterator[str]:
    """Line by line; groups and topics in the order of their declaration. `suspend` is consumer.suspend."""
    if not subscriptions:
        yield "nothing is subscribed"
    groups = dict.fromkeys((one.cluster, one.group) for one in subscriptions)
    for cluster, group in groups:
        yield f"group {group}" + (f" on cluster {cluster}" if cluster else "")
        for one in subscriptions:
            if (one.cluster, one.group) == (cluster, group):
                yield f"  {one.topic}  {describe_tags(one)}"
                yield from _describe(one, suspend=suspend)


def _describe(one: Subscription, *, suspend: float) -> Iterator[str]:
    """The lines of one handler: what was not asked for is left out."""
    yield f"    handler   {one.handler_name} at {_shown_place(one.place)}"
    yield f"    runs      {describe_run(one)}"
    if (name := filter_name(one)) is not None:
        yield f"    filter    {name}"
    yield f"    start     {one.start if isinstance(one.start, str) else one.start.isoformat()}"
    if one.idempotent:
        yield f"    once      by {idempotency_key(one)}"
    if one.publishes:
        yield f"    publishes what it returns to {one.publishes}"
    yield f"    failures  {describe_failures(one, suspend=suspend)}"
    if one.retry is not None and one.retry.on:
        yield f"    on        {describe_outcomes(one.retry)}"
    if one.retry is not None and one.retry.breaker is not None:
        yield f"    breaker   {describe_breaker(one.retry.breaker)}"
    said = [("retries", one.retries_from), ("policy", one.retry_from)]
    shown = [f"{what}: {_shown_source(source)}" for what, source in said if source not in _HERE]
    if shown:
        yield f"    said by   {'; '.join(shown)}"


def route_of(one: Subscription, *, suspend: float) -> dict[str, Any]:
    """One handler for `--json`. What was not asked for is null; seconds are numbers."""
    policy = one.retry
    return {
        **{name: getattr(one, name) for name in _AS_THEY_ARE},
        "tags": sorted(one.tags),
        "sql": one.sql or None,
        "handler": one.handler_name,
        "async": one.is_async,
        "order_by": None if one.order_by is None else key_name(one),
        "filter": filter_name(one),
        "batch_wait": None if one.batch is None else one.batch_wait,
        "start": one.start if isinstance(one.start, str) else one.start.isoformat(),
        "idempotent": idempotency_key(one) if one.idempotent else None,
        "publishes": one.publishes or None,
        "delays": None if policy is None else list(policy.delays),
        "on": None if policy is None else {kind.__name__: describe_outcome(to) for kind, to in policy.on.items()},
        "breaker": None if policy is None or policy.breaker is None else dataclasses.asdict(policy.breaker),
        "policy_from": one.retry_from or None,
        "failures": describe_failures(one, suspend=suspend),
    }


_AS_THEY_ARE = (
    *("cluster", "group", "topic", "place", "broadcast", "orderly", "every", "batch", "concurrency", "rate"),
    *("timeout", "retries", "retries_from"),
)
"""What `--json` says of a handler as its subscription has it."""


def _shown_source(source: str) -> str:
    """`RocketApp at file:line`, with the file as it is seen from here."""
    what, at, place = source.partition(" at ")
    return f"{what} at {_shown_place(place)}" if at else source


def _shown_place(place: str) -> str:
    file, _, line = place.rpartition(":")
    return f"{shown_path(file)}:{line}"


@click.command("config", epilog="Example: rocketapp config app:app")
@json_option
@app_command
def config_command(*, app: RocketApp, settings: Settings, as_json: bool) -> int:
    """Show every setting of APP, and where its value comes from."""
    return show(settings_as_json(settings), describe_settings(settings), as_json=as_json)


def describe_settings(settings: Settings) -> Iterator[str]:
    """`table.key = value  # source`, one a line; secrets are not shown."""
    rows = [
        (f"{table}.{name} = {value if value in (None, HIDDEN) else json.dumps(value, ensure_ascii=False)}", source)
        for table, name, value, source in _shown_options(settings)
    ]
    width = max(len(left) for left, _ in rows)
    for left, source in rows:
        yield f"{left:<{width}}  # {source}"


def settings_as_json(settings: Settings) -> dict[str, dict[str, dict[str, Any]]]:
    """Table -> option -> value and source; secrets are not shown."""
    found: dict[str, dict[str, dict[str, Any]]] = {table: {} for table in settings.tables()}
    for table, name, value, source in _shown_options(settings):
        found[table][name] = {"value": value, "source": source}
    return found


def _shown_options(settings: Settings) -> Iterator[tuple[str, str, Any, str]]:
    """Table and name of each option, its value as it is shown, and its source."""
    for table, options in settings.tables().items():
        for one in dataclasses.fields(options):
            value = getattr(options, one.name)
            shown = HIDDEN if value and info_of(one).secret else _plain(value)
            yield table, one.name, shown, settings.source_of(table, one.name)


def _plain(value: object) -> object:
    """As JSON has it; what JSON does not know is text."""
    if isinstance(value, tuple | list):
        return [_plain(one) for one in value]
    if isinstance(value, str):
        return _without_password(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _without_password(value: str) -> str:
    """A URL without user and password, and without its query, which may hold a token; other texts as they are."""
    return shown_url(value) if "://" in value else value


@click.command("plugins", epilog="Example: rocketapp plugins app:app")
@click.argument("app", required=False)
@settings_option
@json_option
@traceback_option
def plugins_command(*, app: str | None, as_json: bool) -> int:
    """Show the plugins, and what stands around each handler.

    In their order, of APP, or without it those that are installed or named by the settings. Layers: outermost first.
    """
    loaded = None if app is None else load_app(app)
    plugins = _plugins_of(loaded)
    has_failed = any(one["error"] for one in plugins)
    handlers = [] if loaded is None or has_failed else _handlers_of(loaded)
    lines = chain(describe_plugins(plugins), describe_layers(handlers))
    show({"plugins": plugins, "handlers": handlers}, lines, as_json=as_json)
    return USAGE if has_failed else DONE


def _handlers_of(app: RocketApp) -> list[dict[str, Any]]:
    """Each handler with its layers, outermost first: nothing is started."""
    # Plugins learn the settings by it, before they are asked for wrappers.
    surface = AppSurface(app, complete(app, command_settings(app)), clock=SystemClock())
    return [
        {
            "handler": one.subscription.handler_name,
            "topic": one.subscription.topic,
            "group": one.subscription.group,
            "layers": [
                {"layer": layer.name, "of": layer.of} for layer in one.layers(publishing_of(app), surface.plugins)
            ],
        }
        for one in surface.handlers
    ]


def describe_layers(handlers: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """For each handler a line, and below it one for each layer that has something."""
    for one in handlers:
        yield f"around {one['handler']}, topic {one['topic']}, group {one['group']}:"
        layers: dict[str, list[str]] = {}
        for layer in one["layers"]:
            layers.setdefault(layer["layer"], []).append(layer["of"])
        for name, found in layers.items():
            yield f"  {name:<12} {', '.join(found)}"


def describe_plugins(shown: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """One line for each, and its hooks below it."""
    for one in shown:
        place = "-" if one["order"] is None else str(one["order"])
        version = f"{one['distribution']} {one['version']}".strip() or one["module"]
        yield f"{place:>2}  {one['name']}  ({version}; {one['origin']}){'  disabled' if one['disabled'] else ''}"
        if one["error"]:
            yield f"      FAILED: {one['error']}"
        elif not one["disabled"]:
            yield f"      {', '.join(one['hooks'])}"


def _plugins_of(app: RocketApp | None) -> list[dict[str, Any]]:
    """Those that are used in their order, then those that failed, then the disabled ones."""
    # The plugins' own tables are not read: a plugin that fails has to be shown, not to end the command.
    if app is None:
        put_current_directory_on_path()
        config = command_settings().app
        found = find((), config.plugins)
    else:
        declared = declared_of(app)
        config = command_settings(code={"settings": declared.settings, "place": declared.place}).app
        found = declared.found_plugins(config)
    plugins, used, failed = Plugins(), list[dict[str, Any]](), list[dict[str, Any]]()
    wanted = choose(found, config)
    for one in wanted:
        try:
            plugins.add(one)
        except PluginError as error:
            failed.append(_described(one, error=one_line(error.problem)))
        else:
            used.append(_described(one, order=len(used) + 1, hooks=plugins.hooks_of(one.name)))
    chosen = {one.name for one in wanted}
    return used + failed + [_described(one, disabled=True) for one in found if one.name not in chosen]


def _described(
    found: Found, *, order: int | None = None, hooks: tuple[str, ...] = (), disabled: bool = False, error: str = ""
) -> dict[str, Any]:
    """`order`: from 1; None when it is disabled or failed. `error`: why it cannot be used, or empty."""
    distribution, version = _distribution(found)
    return {
        "name": found.name,
        "order": order,
        "origin": found.origin,
        "distribution": distribution,
        "version": version,
        "module": found.module,
        "hooks": hooks,
        "disabled": disabled,
        "error": error,
    }


def _distribution(found: Found) -> tuple[str, str]:
    """Name and version of what installed the plugin; empty for a module that nothing installed."""
    if found.distribution is not None:
        return found.distribution.name, found.distribution.version
    names = packages_distributions().get(found.module.partition(".")[0])
    return (names[0], version(names[0])) if names else ("", "")
