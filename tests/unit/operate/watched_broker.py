"""A broker with its page, in a thread of this process, and what is asked of both."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from rocketapp.admin.cluster import AdminCluster
from rocketapp.app.settings import Settings, with_name_server
from rocketapp.cli.cluster import run_on
from rocketapp.cli.processes.broker import serve_broker
from rocketapp.cli.processes.stop import ProcessStop
from rocketapp.config.broker import BrokerConfig
from rocketapp.model.subscription import SubscriptionData, parse_tags
from rocketapp.transport.connection import Connection
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.clients import ConsumerData, Heartbeat
from rocketapp.wire.requests.offsets import CommitRequest
from rocketapp.wire.requests.send import SendRequest

T = TypeVar("T")
NAMES = {"dir": "--dir", "listen": "--listen", "http": "--http"}


class Answered(NamedTuple):
    status: int
    text: str


class WatchedBroker:
    """A store in a directory, of which `serving` is the broker."""

    def __init__(self, directory: Path, *, memory: bool = False, **options: Any) -> None:
        self._memory = memory
        config = BrokerConfig(**{"dir": str(directory), "listen": "127.0.0.1:0", "http": "127.0.0.1:0", **options})
        self.settings = Settings(broker=config)
        self.address = self.http = ""

    @contextlib.contextmanager
    def serving(self) -> Iterator[WatchedBroker]:
        serves: Future[str] = Future()
        loop, stop = asyncio.new_event_loop(), ProcessStop(1.0, lambda: None)
        self.loop = loop

        async def serve() -> None:
            try:
                await serve_broker(
                    self.settings,
                    memory=self._memory,
                    or_free_port=False,
                    names=NAMES,
                    stop=stop,
                    on_serving=serves.set_result,
                )
            except BaseException as error:
                serves.set_exception(error)

        def run() -> None:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(serve())

        thread = threading.Thread(target=run, name="watched broker")
        with _lines("rocketapp.broker") as lines:
            thread.start()
            self.address = serves.result(30)
        self.http = next(line for line in lines if "tells how the broker does" in line).split()[0]
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(stop.requested.set)
            thread.join()

    def get(self, path: str, **headers: str) -> Answered:
        return self._ask("GET", path, None, headers)

    def post(self, path: str, /, *, headers: dict[str, str] | None = None, **fields: str) -> Answered:
        return self._ask("POST", path, urlencode(fields), headers or {})

    def _ask(self, method: str, path: str, body: str | None, headers: dict[str, str]) -> Answered:
        connection = http.client.HTTPConnection(self.http.removeprefix("http://"), timeout=30)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answered(response.status, response.read().decode())
        finally:
            connection.close()

    def work(self, work: Callable[[AdminCluster], Coroutine[Any, Any, T]]) -> T:
        return run_on(with_name_server(self.settings, self.address), work)

    def send(self, topic: str, *bodies: bytes, queue: int = 0, queues: int = 2, **properties: str) -> None:
        encoded = names.encode(properties).decode()

        async def each(connection: Connection) -> None:
            for body in bodies:
                request = SendRequest("makers", topic, default_queues=queues, queue_id=queue, properties=encoded)
                answer = await connection.start_request(
                    Command(RequestCode.SEND_MESSAGE_V2, request.to_fields(), body), timeout=30.0
                )
                assert answer.code == 0, answer.remark

        self.on_connection(each)

    def commit(self, group: str, topic: str, queue: int, offset: int) -> None:
        async def work(connection: Connection) -> None:
            request = CommitRequest(group=group, topic=topic, queue_id=queue, offset=offset)
            command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, request.to_fields())
            assert (await connection.start_request(command, timeout=30.0)).code == 0

        self.on_connection(work)

    def joined(self, group: str, topic: str, tags: str, client_id: str, look: Callable[[], T]) -> T:
        """What is seen while a member of this group is connected."""

        async def work(connection: Connection) -> T:
            subscription = SubscriptionData(topic, tags, parse_tags(tags), 1)
            heartbeat = Heartbeat(client_id, (), (ConsumerData(group, subscriptions=(subscription,)),))
            command = Command(RequestCode.HEART_BEAT, {}, heartbeat.encode())
            assert (await connection.start_request(command, timeout=30.0)).code == 0
            return await asyncio.to_thread(look)

        return self.on_connection(work)

    def on_connection(self, work: Callable[[Connection], Coroutine[Any, Any, T]]) -> T:
        async def connected(cluster: AdminCluster) -> T:
            return await work(await cluster.connection("broker-a"))

        return self.work(connected)


@contextlib.contextmanager
def _lines(logger: str) -> Iterator[list[str]]:
    """What this logger says meanwhile."""
    found: list[str] = []

    class Keeps(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    log, handler = logging.getLogger(logger), Keeps()
    level = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield found
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
