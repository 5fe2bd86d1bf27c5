"""The cluster that a command talks to: the name server of the settings, or the embedded broker of this folder."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from rocketapp.admin.cluster import AdminCluster
from rocketapp.app.settings import Settings
from rocketapp.cli.failure import FAILED, CommandError, print_failure
from rocketapp.cli.options import SILENT, command_settings
from rocketapp.cli.runtime import run_in_loop
from rocketapp.client.instance import ClientInstance
from rocketapp.clock import SystemClock
from rocketapp.embedded.running import find_serving
from rocketapp.errors import ConfigError, KeysRefused, RocketAppError
from rocketapp.model.numbers import END_MS
from rocketapp.model.subscription import Subscription
from rocketapp.transport.tcp import dial_tcp

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.scripts.sync_client import SyncClient

T = TypeVar("T")


async def find_name_server(settings: Settings) -> str:
    """The address of the name server. Raises CommandError when neither settings nor an embedded broker name one."""
    if settings.client.name_server:
        return settings.client.name_server
    directory = Path(settings.broker.dir)
    running = await find_serving(directory)
    if running is None:
        raise CommandError(
            f"no name server is set and no embedded broker serves {directory}/: "
            "give --name-server H:P, or start `rocketapp run` or `rocketapp broker` in this folder"
        )
    return running.address


@asynccontextmanager
async def connected(settings: Settings) -> AsyncIterator[ClientInstance]:
    """A client of that cluster, for the `async with` block of a command. Raises ConfigError for refused access keys."""
    config = replace(settings.client, name_server=await find_name_server(settings))
    with _connecting():
        client = ClientInstance(
            config=config, dial=dial_tcp, clock=SystemClock(), random=random.Random(), observe=lambda event: None
        )
        await client.start()
    try:
        if config.access_key:
            await client.check_keys()
        yield client
    finally:
        await client.stop()


@contextmanager
def _connecting() -> Iterator[None]:
    """Context manager for dialling the name server. Raises ConfigError for wrong settings, CommandError otherwise."""
    try:
        yield
    except ConfigError:
        raise
    except RocketAppError as error:
        raise CommandError(f"name server {error}: is it running, and is --name-server right?") from error


@contextmanager
def open_client(producer_group: str = "") -> Iterator[SyncClient]:
    """A SyncClient of that cluster. `producer_group`: the group to send as, unless the settings have one.

    Raises ConfigError for access keys that the cluster refuses.
    """
    from rocketapp.scripts.sync_client import SyncClient

    settings = command_settings()
    tables = {name: asdict(settings.tables()[name]) for name in ("client", "consumer", "producer")}
    tables["producer"]["group"] = settings.producer.group or producer_group
    name_server = run_in_loop(find_name_server(settings))
    with ExitStack() as entered:
        with _connecting():
            client = entered.enter_context(SyncClient(name_server, settings=tables))
        yield client


def clusters_of(
    app: RocketApp, settings: Settings, subscriptions: Sequence[Subscription]
) -> Iterator[tuple[str, Settings, list[Subscription]]]:
    """The clusters that an app consumes from: name, settings to connect with, and its subscriptions there."""
    from rocketapp.app.declare.phases import declared_of

    declared = declared_of(app)
    for cluster in dict.fromkeys(one.cluster for one in subscriptions):
        client = replace(settings.client, name_server=declared.clusters[cluster]) if cluster else settings.client
        yield cluster, replace(settings, client=client), [one for one in subscriptions if one.cluster == cluster]


def ask_cluster(work: Callable[[AdminCluster], Coroutine[Any, Any, T]]) -> T:
    """Run `work` on the cluster and return its result. Raises CommandError (exit code 1) if it fails or times out."""
    return run_on(command_settings(), work)


def run_on(
    settings: Settings,
    work: Callable[[AdminCluster], Coroutine[Any, Any, T]],
    own: Mapping[str, str] | None = None,
) -> T:
    """`ask_cluster` with settings that were read before. `own`: see `AdminCluster.of`."""

    async def run() -> T:
        async with connected(settings) as client:
            try:
                cluster = await AdminCluster.of(client, own)
                found = await work(cluster)
            except (CommandError, KeysRefused):
                raise
            except RocketAppError as error:
                raise CommandError(str(error).removeprefix("topic : "), FAILED) from error
            _tell_silent(cluster)
            return found

    return run_in_loop(run())


def _tell_silent(cluster: AdminCluster) -> None:
    """Say which brokers did not answer."""
    context = click.get_current_context(silent=True)
    for name, error in cluster.silent.items():
        text = f"broker {name} does not answer, and what it has is left out: {error}"
        as_json = context is not None and bool(context.params.get("as_json"))
        print_failure(text, code=FAILED, as_json=as_json)
    if context is not None and cluster.silent:
        context.meta[SILENT] = True


def local_time(stored_ms: int) -> str:
    """Milliseconds since 1970 as local time, to the second; empty for 0 and for dates out of range."""
    text = json_time(stored_ms)
    return datetime.fromisoformat(text).astimezone().isoformat(sep=" ", timespec="seconds") if text else ""


def json_time(stored_ms: int) -> str | None:
    """Milliseconds since 1970 as UTC, as `tail --json` writes it; None for 0 and for dates out of range."""
    return datetime.fromtimestamp(stored_ms / 1000, UTC).isoformat() if 0 < stored_ms < END_MS else None
