"""The handlers of an app alone: everything around them is started, nothing is consumed and nothing is published.

For a look at what a handler does with one message. What it publishes is collected; what it writes elsewhere, in its
database for example, is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from rocketapp.app.declare.adjusting import LimitChange
from rocketapp.app.declare.pausing import PauseChange
from rocketapp.app.declare.phases import TwoPhases, begin, declared_of, end
from rocketapp.app.publish.publishing import Publishing
from rocketapp.app.run.assembly import PlannedConsumer, assemble
from rocketapp.app.run.periodic import Periodic
from rocketapp.app.run.reading import complete, prepare
from rocketapp.app.run.user_code import UserCode
from rocketapp.app.settings.settings import Settings
from rocketapp.clock import SystemClock
from rocketapp.consumer.workers.threads import Threads
from rocketapp.errors import ConnectError, SetupError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.producer.producer import Producer
from rocketapp.transport.stream import Receiver, Stream
from rocketapp.transport.tls import Tls
from rocketapp.wire.record import Message
from rocketapp.wire.requests.replies import reply_to


@asynccontextmanager
async def handlers_alone(
    app: TwoPhases, settings: Settings, published: list[Outgoing]
) -> AsyncIterator[tuple[PlannedConsumer, ...]]:
    """Within: plugins, resources and startup functions have run. Gives the groups with the chains of their handlers.

    `published` receives what they publish. Raises SetupError, PluginError and ConfigError, and what startup raises.
    """
    prepare(app, settings.app)
    settings = complete(app, settings)
    declared, running = declared_of(app), _Alone(app, published)
    snapshot = AppSnapshot(cache_limit_bytes=settings.consumer.cache_max_bytes, groups=())
    assembly = assemble(
        app,
        settings,
        publishing=Publishing(lambda: running, payloads=declared.payloads),
        dial=_refuse,
        clock=SystemClock(),
        random=Random(),
        threads=Threads,
        plugins=declared.plugins,
        periodic=Periodic(),
        snapshot=lambda: snapshot,
    )
    code = UserCode(app, declared.plugins, assembly.surface, patience=settings.app.drain_timeout)
    begin(app, running)
    declared.settings_in_use = settings
    try:
        await assembly.wiring.start_resources()
        await code.start()
        yield assembly.groups
    finally:
        await code.stop(asyncio.Event())
        await assembly.wiring.stop_resources()
        assembly.wiring.release()
        declared.settings_in_use = None
        end(app)


async def _refuse(address: str, receiver: Receiver, timeout: float, tls: Tls | None = None, /) -> Stream:
    raise ConnectError(address, "nothing is connected while a handler is tried")


class _Alone:
    """Stands for a running app. It sends nothing."""

    send_timeout = 3.0

    def __init__(self, app: TwoPhases, published: list[Outgoing]) -> None:
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self._app, self._sender = app, _Collects(published)

    def sender(self, cluster: str) -> _Collects:
        return self._sender

    def producer(self, cluster: str) -> Producer:
        raise SetupError("", "nothing is connected while a handler is tried: it cannot ask, nor begin a transaction")

    def replying(self, cluster: str) -> _Collects:
        return self._sender

    def options(self, kind: type[Any]) -> Any:
        return declared_of(self._app).options(kind)

    def change_pauses(self, change: PauseChange) -> None:
        """There is nothing to pause."""

    def adjust(self, change: LimitChange) -> None:
        """There is nothing to limit."""


class _Collects:
    """Stands for the producers."""

    def __init__(self, published: list[Outgoing]) -> None:
        self._published = published

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult:
        self._published.append(message)
        number = len(self._published)
        return SendResult(f"NOTSENT{number:025X}", "", MessageQueue(message.topic, "none", 0), number - 1)

    async def send_many(self, messages: Sequence[Outgoing]) -> list[SendResult]:
        return [await self.send(message) for message in messages]

    async def send_one_way(self, message: Outgoing) -> None:
        await self.send(message)

    async def reply(
        self, request: Message, body: bytes, properties: Mapping[str, str], *, timeout: float | None = None
    ) -> None:
        to = reply_to(request.properties)
        topic = request.topic if to is None else to.topic
        self._published.append(Outgoing(topic=topic, body=body, properties=properties))
