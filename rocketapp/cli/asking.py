"""What the commands of administrators have in common: their options, their cluster, their output."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from rocketapp.cli.failure import DONE, FAILED, CommandError, print_failure
from rocketapp.cli.options import json_option, name_server_option, refuse_empty

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.app.settings.settings import Settings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
_SILENT = "rocketapp.silent"
"""Set in the context of a command that went without a broker."""


def cluster_options(command: F) -> F:
    """--name-server and --json. A command that shows a part of the cluster alone, because brokers are silent, fails."""

    @functools.wraps(command)
    def told(*arguments: Any, **options: Any) -> int:
        code: int = command(*arguments, **options)
        return FAILED if code == DONE and _SILENT in click.get_current_context().meta else code

    return name_server_option(json_option(cast(F, told)))


def settings_for(name_server: str | None) -> Settings:
    """The settings of this folder, with this name server if one is given."""
    from rocketapp.cli.settings import read_settings

    refuse_empty({"--name-server": name_server})
    return read_settings({"client": {"name_server": name_server}} if name_server else {})


def ask_cluster(name_server: str | None, work: Callable[[AdminCluster], Coroutine[Any, Any, T]]) -> T:
    """What `work` returns. Raises CommandError with exit code 1 for a refusal or an answer that never came."""
    return run_on(settings_for(name_server), work)


def run_on(settings: Settings, work: Callable[[AdminCluster], Coroutine[Any, Any, T]]) -> T:
    """The same with settings that were read before."""
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.cli.cluster import connected
    from rocketapp.cli.loop import run_in_loop
    from rocketapp.errors import KeysRefused, RocketAppError

    async def run() -> T:
        async with connected(settings) as client:
            try:
                cluster = await AdminCluster.of(client)
                found = await work(cluster)
            except KeysRefused as error:
                raise CommandError(str(error)) from error
            except RocketAppError as error:
                raise CommandError(str(error).removeprefix("topic : "), FAILED) from error
            _tell_silent(cluster)
            return found

    return run_in_loop(run())


def _tell_silent(cluster: AdminCluster) -> None:
    """Which brokers a look went without."""
    context = click.get_current_context(silent=True)
    for name, error in cluster.silent.items():
        text = f"broker {name} does not answer, and what it has is left out: {error}"
        as_json = context is not None and bool(context.params.get("as_json"))
        print_failure(text, code=FAILED, as_json=as_json)
    if context is not None and cluster.silent:
        context.meta[_SILENT] = True


def local_time(stored_ms: int) -> str:
    """Milliseconds since 1970 in this machine's time zone, to the second; empty for 0."""
    return moment(stored_ms).astimezone().isoformat(sep=" ", timespec="seconds") if stored_ms > 0 else ""


def moment(stored_ms: int) -> datetime:
    """Milliseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(stored_ms / 1000, UTC)


def json_time(stored_ms: int) -> str | None:
    """In UTC, as `tail --json` writes it; None for 0."""
    return moment(stored_ms).isoformat() if stored_ms > 0 else None
