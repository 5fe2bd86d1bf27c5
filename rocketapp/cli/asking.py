"""What the commands of administrators have in common: their options, their cluster, their output."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from rocketapp.cli.failure import FAILED, CommandError
from rocketapp.cli.options import json_option, name_server_option, refuse_empty

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.app.settings.settings import Settings

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(command: F) -> F:
    """--name-server and --json."""
    return name_server_option(json_option(command))


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
    from rocketapp.errors import RocketAppError

    async def run() -> T:
        async with connected(settings) as client:
            try:
                return await work(await AdminCluster.of(client))
            except RocketAppError as error:
                raise CommandError(str(error).removeprefix("topic : "), FAILED) from error

    return run_in_loop(run())


def local_time(stored_ms: int) -> str:
    """Milliseconds since 1970 in this machine's time zone, to the second; empty for 0."""
    return moment(stored_ms).astimezone().isoformat(sep=" ", timespec="seconds") if stored_ms > 0 else ""


def moment(stored_ms: int) -> datetime:
    """Milliseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(stored_ms / 1000, UTC)


def json_time(stored_ms: int) -> str | None:
    """In UTC, as `tail --json` writes it; None for 0."""
    return moment(stored_ms).isoformat() if stored_ms > 0 else None
