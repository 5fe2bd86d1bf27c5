"""What unit tests talk to: a server that answers as it is told, and a small cluster of such servers."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from random import Random
from typing import Any

from rocketapp.model.event import Event
from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.testing.virtual_time import VirtualTimeLoop
from rocketapp.transport.connection import Connection, Listener
from rocketapp.transport.memory import MemoryListening, MemoryNetwork
from rocketapp.transport.stream import split_address
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.clients import Heartbeat
from rocketapp.wire.requests.routes import RouteRequest, encode_route
from rocketapp.wire.requests.send import SendRequest, SendResponse
from tests.random_network import RandomNetwork
from tests.virtual import run_virtual

Answer = Callable[[Command], Command | None]
HANGS = 60.0
"""Seconds of a real clock after which a test waits in vain."""


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop whose clock jumps from timer to timer."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        run_virtual(lambda: test(*args, **kwargs))

    return run


class ClockAt:
    """A clock that says one time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> float:
        return self._seconds


async def eventually(condition: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for a condition; it is seen at the latest after a five-hundredth of the time that it took.

    On a real clock `seconds` bounds nothing: a busy machine may let a thread wait for longer.
    """
    loop = asyncio.get_running_loop()
    now = loop.time
    began = now()
    async with asyncio.timeout(seconds if isinstance(loop, VirtualTimeLoop) else max(seconds, HANGS)):
        while not condition():  # noqa: ASYNC110 - the condition is anybody's, so nothing here is an event to wait for
            await asyncio.sleep(max(0.001, (now() - began) / 500))


class Events(list[Event]):
    """An observer that remembers."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self if isinstance(event, kind)]


class ScriptedServer:
    """Answers requests by code; what it has no answer for, it leaves unanswered."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        self.network, self.address = network, address
        self.asked: list[Command] = []
        self.answers: dict[int, Answer] = {}
        self.listener = Listener(serve=self._serve, max_frame_bytes=1 << 24)
        self._listening: MemoryListening | None = None

    async def start(self) -> ScriptedServer:
        self._listening = await self.network.listen(*split_address(self.address), self.listener.accept)
        return self

    async def stop(self) -> None:
        """Like a process that dies: nothing listens, every connection is reset."""
        if self._listening is not None:
            await self._listening.close()
        self.network.cut(self.address)

    def codes(self) -> list[int]:
        return [int(command.code) for command in self.asked]

    def connection(self) -> Connection:
        """The connection of its only client."""
        (connection,) = self.listener.connections
        return connection

    def _serve(self, connection: Connection, command: Command) -> Command | None:
        self.asked.append(command)
        answer = self.answers.get(int(command.code))
        return None if answer is None else answer(command)


def ok(command: Command) -> Command:
    return Command.response(command, ResponseCode.SUCCESS)


def refuse(code: int, remark: str = "") -> Answer:
    return lambda command: Command.response(command, code, remark=remark)


class ScriptedBroker(ScriptedServer):
    """Takes heartbeats and stores sends in a list."""

    def __init__(self, network: MemoryNetwork, address: str, name: str = "broker-a") -> None:
        super().__init__(network, address)
        self.name = name
        self.stored: list[tuple[SendRequest, bytes]] = []
        self.on_stored: Callable[[SendRequest], None] = lambda _: None
        self.answers[RequestCode.HEART_BEAT] = ok
        self.answers[RequestCode.UNREGISTER_CLIENT] = ok
        self.answers[RequestCode.SEND_MESSAGE_V2] = self.store
        self.answers[RequestCode.SEND_BATCH_MESSAGE] = self.store

    def beats(self) -> list[Heartbeat]:
        return [Heartbeat.decode(each.body) for each in self.asked if each.code == RequestCode.HEART_BEAT]

    def store(self, command: Command) -> Command:
        request = SendRequest.from_command(command)
        self.stored.append((request, command.body))
        self.on_stored(request)
        response = SendResponse(f"ID{len(self.stored)}", request.queue_id, len(self.stored) - 1)
        return Command.response(command, ResponseCode.SUCCESS, fields=response.to_fields())


class ScriptedNameServer(ScriptedServer):
    """Tells the routes it was given."""

    def __init__(self, network: MemoryNetwork, address: str) -> None:
        super().__init__(network, address)
        self.routes: dict[str, TopicRoute] = {}
        self.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = self._route

    def topics_asked(self) -> list[str]:
        return [RouteRequest.from_fields(each.fields).topic for each in self.asked]

    def _route(self, command: Command) -> Command:
        route = self.routes.get(RouteRequest.from_fields(command.fields).topic)
        if route is None:
            return Command.response(command, ResponseCode.TOPIC_NOT_EXIST, remark="No topic route info")
        return Command.response(command, ResponseCode.SUCCESS, body=encode_route(route))


class Cluster:
    """One name server and brokers `broker-a`, `broker-b` ... in a network of their own."""

    def __init__(self, brokers: int = 1, seed: int = 0) -> None:
        self.network = RandomNetwork(Random(seed))
        self.name_server = ScriptedNameServer(self.network, "10.0.0.1:9876")
        self.brokers = [
            ScriptedBroker(self.network, f"10.0.1.{number}:10911", f"broker-{chr(ord('a') + number)}")
            for number in range(brokers)
        ]

    async def start(self) -> Cluster:
        for server in (self.name_server, *self.brokers):
            await server.start()
        return self

    def route(self, *, queues: int = 4, perm: int = 6, brokers: list[ScriptedBroker] | None = None) -> TopicRoute:
        chosen = self.brokers if brokers is None else brokers
        return TopicRoute(
            tuple(QueueData(each.name, queues, queues, perm) for each in chosen),
            tuple(BrokerData("DefaultCluster", each.name, {0: each.address}) for each in chosen),
        )

    def add_topic(self, topic: str, *, queues: int = 4) -> None:
        self.name_server.routes[topic] = self.route(queues=queues)


class FakeStream:
    """A stream without another end: remembers what is written, one item per write."""

    peer, local = "10.0.0.9:1", "10.0.0.8:2"

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.unsent = 0
        self.reading = True
        self.ended = ""

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.ended = self.ended or "closed"

    def disown(self) -> None: ...

    def abort(self) -> None:
        self.ended = "aborted"


async def outcome(call: Awaitable[Any]) -> Any:
    """What a call returns, or the exception that it raises."""
    try:
        return await call
    except Exception as error:
        return error
