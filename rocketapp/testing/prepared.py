"""An app with its plugins started, for calls of its handlers: no broker is there, and the app does not run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from rocketapp.app.app import RocketApp
from rocketapp.app.declare.phases import declared_of, is_running, kept
from rocketapp.app.payloads.payloads import Payloads
from rocketapp.app.publish.publishing import Publishing
from rocketapp.app.run.reading import policed_subscriptions
from rocketapp.app.run.surface import AppSurface, Periodic
from rocketapp.app.run.user_code import UserCode
from rocketapp.app.settings.settings import Settings
from rocketapp.errors import SetupError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.model.snapshot import AppSnapshot
from rocketapp.model.subscription import Subscription
from rocketapp.producer.producer import Producer
from rocketapp.testing.records import Published, published_of
from rocketapp.testing.stage import settings_of
from rocketapp.wire.record import Message
from rocketapp.wire.requests.replies import reply_to


@dataclass(slots=True)
class _Started:
    """The plugins of one app, started once for all calls at this moment."""

    calls: int = 0
    code: UserCode | None = None


@asynccontextmanager
async def prepared(app: RocketApp) -> AsyncIterator[list[Subscription]]:
    """Within: the plugins of the app know its settings and are started. Gives its complete subscriptions.

    Plugins of an app that runs, under TestApp for example, are started already. Raises what plugins raise.
    """
    settings, declared = settings_of(app, {}, None), declared_of(app)
    subscriptions = policed_subscriptions(app, settings, declared.plugins)
    if is_running(app):
        yield subscriptions
        return
    started = kept(app, _Started)
    started.calls += 1
    try:
        if started.code is None:
            started.code = _plugins_of(app, settings, subscriptions)
            declared.settings_in_use = settings
            await started.code.start_plugins()
        yield subscriptions
    finally:
        started.calls -= 1
        if not started.calls and started.code is not None:
            code, started.code = started.code, None
            await code.stop(asyncio.Event())
            declared.settings_in_use = None


def _plugins_of(app: RocketApp, settings: Settings, subscriptions: Sequence[Subscription]) -> UserCode:
    """Observers are asked here, so that plugins see the settings before they wrap a handler."""
    snapshot = AppSnapshot(cache_limit_bytes=settings.consumer.cache_max_bytes, groups=())
    plugins = declared_of(app).plugins
    surface = AppSurface(
        app,
        settings,
        subscriptions,
        publishing=collecting(app, []),
        periodic=Periodic(),
        plugins=plugins,
        snapshot=lambda: snapshot,
    )
    return UserCode(app, plugins, surface, patience=settings.app.drain_timeout)


def collecting(app: RocketApp, published: list[Published]) -> Publishing:
    """Publishes into this list."""
    payloads = declared_of(app).payloads
    running = _Collecting(asyncio.get_running_loop(), published, payloads, declared_of(app).options)
    return Publishing(lambda: running, payloads=payloads)


class _Collecting:
    """Stands for a running app, as far as publishing needs one."""

    send_timeout = 3.0

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        published: list[Published],
        payloads: Payloads,
        options: Callable[[type[Any]], Any],
    ) -> None:
        self.loop, self.published, self.payloads, self.options = loop, published, payloads, options

    def sender(self, cluster: str) -> _Sender:
        return _Sender(self, cluster)

    def replying(self, cluster: str) -> _Sender:
        return _Sender(self, cluster)

    def producer(self, cluster: str) -> Producer:
        raise SetupError("", "a handler is called without a cluster: it cannot ask, nor begin a transaction")


class _Sender:
    """The producer of one cluster."""

    def __init__(self, collecting: _Collecting, cluster: str) -> None:
        self._collecting, self._cluster = collecting, cluster

    async def send(self, message: Outgoing, *, timeout: float | None = None) -> SendResult:
        into, now = self._collecting.published, self._collecting.loop.time()
        into.append(published_of(message, self._cluster, now, self._collecting.payloads))
        number = len(into)
        return SendResult(f"TEST{number:028X}", "", MessageQueue(message.topic, "broker-a", 0), number - 1)

    async def send_many(self, messages: Sequence[Outgoing]) -> list[SendResult]:
        return [await self.send(message) for message in messages]

    async def send_one_way(self, message: Outgoing) -> None:
        await self.send(message)

    async def reply(
        self, request: Message, body: bytes, properties: Mapping[str, str], *, timeout: float | None = None
    ) -> None:
        to = reply_to(request.properties)
        topic = request.topic if to is None else to.topic
        await self.send(Outgoing(topic=topic, body=body, properties=properties))
