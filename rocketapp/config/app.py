"""Options of the application as a whole: table `[app]`."""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.config.option import option

MOST_WORKERS = 256
"""Processes of one `rocketapp run`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppConfig:
    """How the process behaves around its handlers."""

    group: str = option("", "Group of subscriptions that name none; empty: the app's name.")
    drain_timeout: float = option(30.0, "Seconds that running handlers get to finish at shutdown.", least=0.0)
    connect_timeout: float = option(10.0, "Seconds to wait for the cluster at start.", least=0.1)
    log_format: str = option("text", "How log lines look.", choices=("text", "json"))
    log_context: bool | None = option(
        None, "Every line that a handler logs carries its message's facts. None: with `log_format` json only."
    )
    log_level: str = option("INFO", "Least level that is logged.", choices=("DEBUG", "INFO", "WARNING", "ERROR"))
    workers: int = option(1, "Processes that `rocketapp run` starts, as `--workers` says.", least=1, most=MOST_WORKERS)
    http: str = option("", "Where `/health`, `/ready`, `/metrics` and the page are served, host:port. Empty: nowhere.")
    http_durations: bool | None = option(
        None,
        "With `http`, how long handlers and sends take is measured, for half a microsecond per message. None: in "
        "the environment `development` only.",
    )
    ready_patience: float = option(
        30.0, "Seconds that a queue may stand still before `/ready` says that a person is needed.", least=0.0
    )
    version: str = option("", "Version of the user's app, written into dead letters.")
    plugins: tuple[str, ...] = option((), "Plugins beside the installed ones: `module` or `module:attribute`.")
    disabled_plugins: tuple[str, ...] = option((), "Names of plugins to leave out: they are not imported.")
    plugin_order: tuple[str, ...] = option((), "Names of plugins, outermost last; those not named come before them.")
