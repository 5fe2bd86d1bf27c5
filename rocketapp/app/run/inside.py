"""An app inside a loop that runs already: `async with app:`.

`async with` reads settings as `rocketapp run` does, but starts no process: where nothing names a cluster, an embedded
broker has to serve this folder already. Logging, signals and the kind of loop are the program's own.
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from random import Random

from rocketapp.app.declare.phases import TwoPhases, declared_of, end, handlers_of, read_settings
from rocketapp.app.places import place_of_call
from rocketapp.app.run.lifecycle import Lifecycle
from rocketapp.app.run.wiring import World
from rocketapp.app.settings import Settings, with_name_server
from rocketapp.app.sources import SWITCHER
from rocketapp.clock import SystemClock
from rocketapp.embedded.running import find_serving
from rocketapp.errors import ConfigError, SetupError
from rocketapp.tasks import scope
from rocketapp.transport.tcp import dial_tcp

log: logging.Logger = logging.getLogger("rocketapp.app")


async def start(app: TwoPhases) -> Lifecycle:
    """Returns when messages flow. Raises what Lifecycle.start raises; then nothing is left running."""
    declared, settings = declared_of(app), read_settings(app, os.environ)
    clusters = [one.subscription.cluster for one in handlers_of(app, settings)]
    if not settings.client.name_server and declared.uses_unnamed_cluster(clusters):
        settings = with_name_server(settings, await _embedded_broker(settings))
    world = World(dial=dial_tcp, clock=SystemClock(), random=Random(), worker=1)
    lifecycle = Lifecycle(app, settings, world)
    await lifecycle.start()
    return lifecycle


def check_loop(lifecycle: Lifecycle) -> None:
    """Raises SetupError in another event loop than the one in which it was started, unless that was closed."""
    if not lifecycle.loop.is_closed() and lifecycle.loop is not asyncio.get_running_loop():
        raise SetupError(place_of_call(), "the app was entered in another event loop: leave it there")


async def stop(app: TwoPhases, lifecycle: Lifecycle) -> None:
    """Drain and stop. A cancelled wait cuts the drain: what handlers have in flight is handed out again later."""
    if lifecycle.loop.is_closed():
        log.error(
            "the event loop of %r was closed before the app was left: its messages are delivered again", lifecycle
        )
        end(app)
        return
    cut = asyncio.Event()
    async with scope(lifecycle.stop(cut)) as (stopping,):
        try:
            clean = await asyncio.shield(stopping)
        except asyncio.CancelledError:
            cut.set()
            await asyncio.wait({stopping})
            raise
    if not clean:
        log.error("%r was stopped before everything was finished; its messages are delivered again", lifecycle)


async def _embedded_broker(settings: Settings) -> str:
    """The address of the one that serves this folder. Raises ConfigError when there is none."""
    if settings.clusters:
        raise ConfigError(
            "client.name_server",
            f"is not set for environment {settings.environment}, but there is one in {', '.join(settings.clusters)}: "
            f"set it there, or choose another environment with {SWITCHER}",
        )
    directory = Path(settings.broker.dir)
    running = await find_serving(directory)
    if running is None:
        raise ConfigError(
            "client.name_server",
            f"is not set, and no embedded broker serves {directory}/: set it in settings.toml, as "
            "ROCKETAPP_CLIENT__NAME_SERVER or in RocketApp(settings=...), or start `rocketapp broker` in this folder",
        )
    log.info("no name server is set: using the embedded broker of %s/ at %s", directory, running.address)
    return running.address
