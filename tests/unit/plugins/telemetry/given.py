"""An app on an embedded broker in memory, with telemetry."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from rocketapp import RocketApp
from rocketapp.app.run.lifecycle import Lifecycle
from rocketapp.app.run.wiring import Runtime
from rocketapp.app.settings import Settings
from rocketapp.clock import SystemClock
from rocketapp.config.app import AppConfig
from rocketapp.config.broker import BrokerConfig
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.model.event import DeadLettered, Event, Handled, Retried
from rocketapp.plugin import hookimpl
from rocketapp.plugins.telemetry.config import TelemetryConfig
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.properties import encode
from rocketapp.wire.requests.send import SendRequest


class Settled:
    """A plugin that waits until a number of messages have been handled or are dead."""

    def __init__(self, count: int) -> None:
        self._left = count
        self.all = asyncio.Event()

    @hookimpl
    def observe_events(self) -> Callable[[Event], None]:
        return self._observe

    def _observe(self, event: Event) -> None:
        if isinstance(event, Handled):
            self._left -= event.count
        elif isinstance(event, DeadLettered):
            self._left -= 1
        elif isinstance(event, Retried):
            pass
        if self._left <= 0:
            self.all.set()


class Sender:
    """Another client of the same broker, which knows nothing of traces."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def send(self, topic: str, body: bytes, **properties: str) -> None:
        request = SendRequest("others", topic, properties=encode(properties).decode())
        command = Command(RequestCode.SEND_MESSAGE_V2, request.to_fields(), body)
        assert (await self._connection.start_request(command, timeout=30.0)).code == 0


@asynccontextmanager
async def running(
    app: RocketApp, telemetry: TelemetryConfig, *, namespace: str = "", **of_app: Any
) -> AsyncIterator[Sender]:
    """The app, started and stopped, and a client without telemetry that sends to its broker."""
    network, clock = MemoryNetwork(), SystemClock()
    broker = EmbeddedBroker(
        config=BrokerConfig(listen="127.0.0.1:1"), memory=True, clock=clock, random=Random(1), observe=lambda _: None
    )
    address = await broker.start(network)
    settings = Settings(
        app=AppConfig(version="1.2", **of_app),
        client=ClientConfig(name_server=address, namespace=namespace),
        consumer=ConsumerConfig(suspend=0.05),
        plugins={"telemetry": telemetry},
    )
    lifecycle = Lifecycle(app, settings, Runtime(dial=network.dial, clock=clock, random=Random(2)))
    try:
        await lifecycle.start()
        sender = Connection(serve=None, max_frame_bytes=1 << 20)
        sender.attach(await network.dial(address, sender, 3.0))
        yield Sender(sender)
        sender.abort("the test is over")
    finally:
        await lifecycle.stop(asyncio.Event())
        await broker.stop()
