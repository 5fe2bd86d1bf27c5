"""The settings of a command: read for an app, or without one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rocketapp.app.settings import DEVELOPMENT, Settings
from rocketapp.app.sources import CODE, SWITCHER, load_settings
from rocketapp.cli.failure import CommandError

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.model.subscription import Subscription

SHARED_TABLES = ("app", "broker")
"""The tables that the parent of workers and the broker's process need."""
Overrides = Mapping[str, Mapping[str, Any]]


def read_settings(
    overrides: Overrides,
    *,
    file: str | None = None,
    app: RocketApp | None = None,
    code: Mapping[str, Any] | None = None,
) -> Settings:
    """Defaults < code < file < environment < `overrides`. Raises RocketAppError naming place and key.

    Without an app, tables of plugins are unknown and are skipped. `code`: `code_of` an app that is in another process.
    """
    if app is None:
        tables, place = (code["settings"], code["place"]) if code else ({}, CODE)
        return load_settings(file, overrides, os.environ, tables, only_known=True, code_place=place)
    from rocketapp.app.declare.phases import read_settings as read_settings_of

    return read_settings_of(app, os.environ, file=file, overrides=overrides)


def code_of(app: RocketApp) -> dict[str, Any]:
    """The app's name and what it was made with, as far as other processes of the app need it: values of JSON."""
    from rocketapp.app.declare.phases import declared_of

    declared = declared_of(app)
    tables = {name: dict(declared.settings[name]) for name in SHARED_TABLES if declared.settings.get(name)}
    told = {"app": app.name, "settings": tables, "place": declared.place}
    shared: dict[str, Any] = json.loads(json.dumps(told, default=str))
    return shared


def needs_cluster(app: RocketApp, settings: Settings, *, may_embed: bool = True) -> bool:
    """Whether an embedded broker has to stand in for the unnamed cluster, which is used and has no name server.

    An app with named clusters alone, all of whose subscriptions and transactions name one, uses no other. Raises
    CommandError where an embedded broker would hide a mistake: `may_embed` is False; or `--embedded` does not ask for
    one, and the environment is not development or the settings file names a cluster after all.
    """
    from rocketapp.app.declare.phases import declared_of

    subscriptions = subscriptions_of(app, settings)  # what is wrong with them is told before anything is started
    if settings.client.name_server:
        return False
    if not declared_of(app).uses_unnamed_cluster(one.cluster for one in subscriptions):
        return False
    _refuse_hidden_mistake(settings, may_embed=may_embed)
    return True


def _refuse_hidden_mistake(settings: Settings, *, may_embed: bool) -> None:
    """An app in production must not consume an embedded broker and look healthy."""
    mends = f"give --name-server H:P, set client.name_server, or choose another environment with {SWITCHER}"
    if not may_embed:
        raise CommandError(f"--no-embedded: nothing names a cluster for environment {settings.environment}: {mends}")
    is_asked_for = settings.source_of("client", "name_server") == "command line"
    if not is_asked_for and (settings.clusters or settings.environment != DEVELOPMENT):
        where = f", but there is one in {', '.join(settings.clusters)}" if settings.clusters else ""
        raise CommandError(
            f"no cluster is named for environment {settings.environment}{where}: {mends}; "
            "or ask for an embedded broker with --embedded DIR"
        )


def subscriptions_of(app: RocketApp, settings: Settings) -> list[Subscription]:
    """Every subscription, complete, of a handler whose arguments are all known.

    Raises RocketAppError for those that contradict each other, and for an annotation that names nothing.
    """
    from rocketapp.app.declare.phases import handlers_of

    return [one.subscription for one in handlers_of(app, settings)]
