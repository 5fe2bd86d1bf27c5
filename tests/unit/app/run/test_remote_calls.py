"""Plugins that see every request of an app to brokers and name servers."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from rocketapp import Message, RocketApp
from rocketapp.app.run.extensions import connections
from rocketapp.app.run.lifecycle import Lifecycle
from rocketapp.app.run.wiring import World
from rocketapp.app.settings import Settings
from rocketapp.clock import SystemClock
from rocketapp.config.broker import BrokerConfig
from rocketapp.config.client import ClientConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.hooks.manager import Plugins
from rocketapp.plugin import Answered, Calling, PluginError, RemoteAnswer, RemoteCall, hookimpl
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.watched import WatchedConnection
from rocketapp.wire.command import Command


class Signing:
    """Adds a field to every request, and keeps what it sees."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answered: list[tuple[str, RemoteAnswer]] = []

    @hookimpl
    def remote_call(self) -> Calling:
        def calling(call: RemoteCall) -> Answered:
            self.asked.append(call.name)
            call.fields["Signature"] = f"of {call.name}"
            return lambda answer: self.answered.append((call.name, answer))

        return calling


async def test_an_app_s_requests_are_seen_with_their_answers() -> None:
    network, clock, signing, done = MemoryNetwork(), SystemClock(), Signing(), asyncio.Event()
    broker = EmbeddedBroker(
        config=BrokerConfig(listen="127.0.0.1:1"), memory=True, clock=clock, random=Random(1), observe=lambda _: None
    )
    address = await broker.start(network)
    app = RocketApp("shop", plugins=[signing])

    @app.subscribe("orders")
    async def settle(message: Message) -> None:
        done.set()

    settings = Settings(client=ClientConfig(name_server=address))
    lifecycle = Lifecycle(app, settings, World(dial=network.dial, clock=clock, random=Random(2)))
    await lifecycle.start()
    await app.publish("orders", "x")
    await asyncio.wait_for(done.wait(), 60)
    assert await lifecycle.stop(asyncio.Event())
    await broker.stop()
    assert {"GET_ROUTEINFO_BY_TOPIC", "HEART_BEAT", "PULL_MESSAGE", "SEND_MESSAGE_V2"} <= set(signing.asked)
    sent = next(answer for name, answer in signing.answered if name == "SEND_MESSAGE_V2")
    assert (sent.code, sent.error) == (0, None)
    assert all(answer.code is not None or name for name, answer in signing.answered)


def watched(*plugins: Any) -> Connection:
    registered = Plugins()
    for number, plugin in enumerate(plugins):
        registered.register(plugin, f"plugin-{number}")
    return connections(registered, None)(serve=None, max_frame_bytes=1000)  # type: ignore[arg-type]


async def test_without_such_a_plugin_connections_know_nothing_of_it() -> None:
    class Declines:
        @hookimpl
        def remote_call(self) -> None: ...

    assert type(watched(Declines)) is Connection
    assert type(watched(Signing())) is WatchedConnection


async def test_a_request_s_own_fields_are_changed_and_its_end_is_told() -> None:
    signing, shared = Signing(), {"topic": "orders"}
    connection = watched(signing)
    command = Command(10, shared)
    answer = connection.start_request(command, timeout=5)
    connection.abort("gone")
    with pytest.raises(Exception, match="gone"):
        await answer
    await asyncio.sleep(0)
    assert shared == {"topic": "orders"}
    assert command.fields == {"topic": "orders", "Signature": "of SEND_MESSAGE"}
    ((name, told),) = signing.answered
    assert (name, told.code, "gone" in str(told.error)) == ("SEND_MESSAGE", None, True)


async def test_a_plugin_that_fails_is_named_and_the_request_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        @hookimpl
        def remote_call(self) -> Calling:
            def calling(call: RemoteCall) -> None:
                raise KeyError("token")

            return calling

    signing = Signing()
    connection = watched(Broken, signing)
    connection.send_one_way(Command(15))
    assert len(signing.asked) == 1
    assert "plugin plugin-0 failed at a remote call" in caplog.text
    assert "Traceback" not in caplog.text
    connection.abort("done")


def test_what_cannot_be_called_stops_the_start() -> None:
    class Wrong:
        @hookimpl
        def remote_call(self) -> int:
            return 5

    with pytest.raises(PluginError, match="remote_call returned 5: return a function, or None"):
        watched(Wrong)
