"""An embedded broker on a memory network, and clients that ask it in plain commands."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from copy import deepcopy
from random import Random
from typing import Any

from rocketapp.broker.store.files import Files, MemoryFiles
from rocketapp.config.broker import BrokerConfig
from rocketapp.embedded.embedded import EmbeddedBroker
from rocketapp.model.event import Event
from rocketapp.model.subscription import SubscriptionData, parse_tags
from rocketapp.testing.virtual_time import VirtualClock
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message, decode_records
from rocketapp.wire.requests.clients import ConsumerData, Heartbeat
from rocketapp.wire.requests.direct import DirectResult
from rocketapp.wire.requests.pull import FLAG_SUBSCRIPTION, FLAG_SUSPEND, PullRequest
from rocketapp.wire.requests.send import SendRequest


class Client:
    """One connection to the broker, and what the broker asked of it."""

    def __init__(self, name: str, broker: Running) -> None:
        self.name, self._broker = name, broker
        self.asked: list[Command] = []
        self.code: int | None = ResponseCode.SUCCESS
        """What it answers the broker; None: nothing."""
        self.connection = Connection(serve=self._serve, max_frame_bytes=1 << 24)

    async def connect(self) -> Client:
        stream = await self._broker.network.dial(self._broker.address, self.connection, 3.0)
        self.connection.attach(stream)
        return self

    def _serve(self, connection: Connection, command: Command) -> Command | None:
        self.asked.append(command)
        if self.code != ResponseCode.SUCCESS:
            return None if self.code is None else Command.response(command, self.code, remark="refused")
        if command.code == RequestCode.GET_CONSUMER_RUNNING_INFO:
            return Command.response(command, 0, body=b'{"properties":{}}')
        if command.code == RequestCode.CONSUME_MESSAGE_DIRECTLY:
            return Command.response(command, 0, body=DirectResult("CR_SUCCESS").encode())
        if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
            return Command.response(command, 0)
        return None

    async def ask(self, code: int, fields: dict[str, str] | None = None, body: bytes = b"") -> Command:
        return await self.connection.start_request(Command(code, fields, body), timeout=900.0)

    async def send(self, topic: str, body: bytes = b"hello", properties: str = "", **more: Any) -> Command:
        request = SendRequest("makers", topic, properties=properties, **more)
        return await self.ask(RequestCode.SEND_MESSAGE_V2, request.to_fields(), body)

    async def heartbeat(
        self, group: str, *topics: str, tags: str = "*", version: int = 1, model: str = "CLUSTERING"
    ) -> Command:
        subscriptions = tuple(SubscriptionData(topic, tags, parse_tags(tags), version) for topic in topics)
        heartbeat = Heartbeat(
            self.name, ("makers",), (ConsumerData(group, message_model=model, subscriptions=subscriptions),)
        )
        return await self.ask(RequestCode.HEART_BEAT, {}, heartbeat.encode())

    def pull(self, topic: str, offset: int = 0, **more: Any) -> asyncio.Future[Command]:
        """Start a pull that brings its own subscription and may be held for 15 s."""
        given: dict[str, Any] = {
            "group": "billing",
            "queue_id": 0,
            "max_messages": 32,
            "sys_flag": FLAG_SUBSCRIPTION | FLAG_SUSPEND,
            "commit_offset": 0,
            "suspend_ms": 15_000,
            "sub_version": 0,
            "expression": "*",
            **more,
        }
        request = PullRequest(topic=topic, offset=offset, **given)
        return self.connection.start_request(Command(RequestCode.PULL_MESSAGE, request.to_fields()), timeout=900.0)

    async def messages(self, topic: str, offset: int = 0, **more: Any) -> list[Message]:
        """What one pull finds now."""
        response = await self.pull(topic, offset, sys_flag=FLAG_SUBSCRIPTION, **more)
        return decode_records(response.body, None) if response.code == ResponseCode.SUCCESS else []

    def told(self, code: int) -> int:
        """How often the broker sent us that."""
        return sum(command.code == code for command in self.asked)


SMALL_INDEX = {"index_slots": 101, "index_items": 512}


class Running:
    """A broker that can be stopped, killed and started again on the same files."""

    def __init__(self, files: MemoryFiles | None = None, **options: Any) -> None:
        self.loop = asyncio.get_running_loop()
        self.clock = VirtualClock(self.loop)
        self.files = files or MemoryFiles()
        self.network = MemoryNetwork()
        self.events: list[Event] = []
        self.config = BrokerConfig(listen="127.0.0.1:9876", **{"segment_bytes": 1 << 20, **SMALL_INDEX, **options})
        self.broker = self._new(self.files)
        self.address = ""

    def _new(self, files: Files) -> EmbeddedBroker:
        return EmbeddedBroker(
            config=self.config, clock=self.clock, random=Random(1), observe=self.events.append, files=files
        )

    async def start(self) -> None:
        self.address = await self.broker.start(self.network)

    async def client(self, name: str = "client") -> Client:
        return await Client(name, self).connect()

    async def restart(self, *, killed: bool = False) -> None:
        """Start again; `killed` forgets whatever a stop would have written."""
        files = deepcopy(self.files) if killed else self.files
        await self.broker.stop()
        self.files, self.network = files, MemoryNetwork()
        self.broker = self._new(files)
        await self.start()


@contextlib.asynccontextmanager
async def running(files: MemoryFiles | None = None, **options: Any) -> AsyncIterator[Running]:
    broker = Running(files, **options)
    await broker.start()
    try:
        yield broker
    finally:
        await broker.broker.stop()
