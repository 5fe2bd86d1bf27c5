"""The cluster that a command talks to: the settings' name server, or the embedded broker of this folder."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rocketapp.cli.failure import CommandError

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.settings.settings import Settings
    from rocketapp.client.instance import ClientInstance
    from rocketapp.model.subscription import Subscription


async def find_name_server(settings: Settings) -> str:
    """Its address. Raises CommandError when neither settings nor a running embedded broker name one."""
    from rocketapp.embedded.running import find_serving

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
    """A client of that cluster, for as long as the command needs it."""
    from rocketapp.client.instance import ClientInstance
    from rocketapp.clock import SystemClock
    from rocketapp.errors import ConfigError, RocketAppError
    from rocketapp.transport.tcp import dial_tcp

    config = replace(settings.client, name_server=await find_name_server(settings))
    try:
        client = ClientInstance(
            config=config, dial=dial_tcp, clock=SystemClock(), random=random.Random(), observe=lambda event: None
        )
        await client.start()
    except ConfigError as error:
        raise CommandError(str(error)) from error
    except RocketAppError as error:
        raise CommandError(f"name server {error}: is it running, and is --name-server right?") from error
    try:
        yield client
    finally:
        await client.stop()


def clusters_of(
    app: RocketApp, settings: Settings, subscriptions: Sequence[Subscription]
) -> Iterator[tuple[str, Settings, list[Subscription]]]:
    """Each cluster that an app consumes from: its name, the settings that lead there, and what is subscribed there."""
    from rocketapp.app.declare.phases import declared_of

    declared = declared_of(app)
    for cluster in dict.fromkeys(one.cluster for one in subscriptions):
        client = replace(settings.client, name_server=declared.clusters[cluster]) if cluster else settings.client
        yield cluster, replace(settings, client=client), [one for one in subscriptions if one.cluster == cluster]
