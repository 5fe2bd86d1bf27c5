"""What the tests of this room start from: messages as pulls bring them, and handlers as a consumer would call them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rocketapp import Message, RocketApp
from rocketapp.app.call.chain import fold
from rocketapp.app.declare.declaration import Declaration
from rocketapp.app.declare.phases import declared_of
from rocketapp.app.declare.registry import ConsumedGroup
from rocketapp.app.publishing import Publishing
from rocketapp.app.run.wiring import plans_of
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.hooks.hook_types import Sending
from rocketapp.hooks.manager import Plugins
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import SendResult
from rocketapp.wire.layout import Record, encode_record
from rocketapp.wire.properties import encode
from rocketapp.wire.record import decode_records

QUEUE = MessageQueue("orders", "broker-a", 3)


class NotRunning:
    """An app that has no producer."""

    send_timeout = 3.0
    _loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop or asyncio.get_running_loop()

    @loop.setter
    def loop(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    async def send(self, sending: Sending) -> Sequence[SendResult]:
        raise AssertionError("nothing is published here")

    def producer(self, cluster: str) -> Any:
        raise AssertionError("nothing is published here")

    def options(self, kind: type[Any]) -> Any:
        raise AssertionError("no settings are here")


NOWHERE = Publishing(NotRunning)


def message(
    body: bytes = b"{}", *, reconsume_times: int = 0, offset: int = 17, properties: Mapping[str, str] | None = None
) -> Message:
    """One message as a pull brings it."""
    record = Record(
        topic="orders",
        body=body,
        queue_id=3,
        queue_offset=offset,
        reconsume_times=reconsume_times,
        raw_properties=encode(properties or {}),
    )
    return decode_records(encode_record(record), QUEUE)[0]


def line_of(function: Callable[..., Any]) -> str:
    """`file:line` of a function, as errors name it."""
    code = inspect.unwrap(function).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"


def plans(app: RocketApp, consumer: ConsumerConfig | None = None, *, group: str = "") -> tuple[ConsumedGroup, ...]:
    """What the app's consumers would be."""
    return plans_of(_all_bound(app, consumer, group), declared_of(app).plugins, NOWHERE)


def bound(app: RocketApp) -> Declaration:
    """The only handler of an app."""
    (one,) = _all_bound(app)
    return one


def call_of(app: RocketApp, publishing: Publishing = NOWHERE, plugins: Plugins | None = None) -> Callable[[Any], Any]:
    """The callable that the consumer of the only handler would use; without the plugins that are installed."""
    one = bound(app)
    return fold(one.function, one.layers(publishing, plugins or Plugins()), {})


def _all_bound(app: RocketApp, consumer: ConsumerConfig | None = None, group: str = "") -> list[Declaration]:
    declared = declared_of(app)
    found = declared.subscribed(group or app.name, consumer or ConsumerConfig())
    return [one.resolved(declared.providers) for one in found]
