"""Two brokers of one cluster, `broker-a` and `broker-b`, which are restarted one after the other under a reader."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from rocketapp import TransportError
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from tests.peers import toolchain
from tests.peers.bare import GET_ROUTE, Bare
from tests.peers.clusters import Apache, Embedded, of_tests
from tests.peers.loading import Loader, Sent
from tests.peers.scripted import Scripted
from tests.peers.waiting import wait_until

TOPIC = "orders"
NAMES = ("broker-a", "broker-b")


class Pair:
    """The brokers, with one queue each of a topic, and their name server. One broker alone will do."""

    def __init__(self, brokers: list[Any], name_server: str) -> None:
        self.brokers, self.name_server = brokers, name_server
        self.sent: list[str] = []
        for broker in brokers:
            self.make_topic(broker)
        wait_until(lambda: len(self.routes()) == len(brokers), within=60, what="the name server routes to all of them")

    def make_topic(self, broker: Any) -> None:
        with closing(Loader(broker.broker_address)) as loader:
            loader.make_topic(TOPIC, 1)

    def routes(self) -> list[str]:
        with Bare(self.name_server) as asking:
            answer = asking.ask(GET_ROUTE, topic=TOPIC)
        return [queue["brokerName"] for queue in json.loads(answer.body)["queueDatas"]] if answer.code == 0 else []

    def send(self, broker: Any, count: int, tag: str | None = None) -> None:
        bodies = [f"{broker.broker_name}-{len(self.sent) + n}" for n in range(count)]
        with closing(Loader(broker.broker_address)) as loader:
            loader.send(TOPIC, 0, [Sent(body.encode(), tag=tag, unique_id=f"ID-{body}") for body in bodies])
        self.sent += bodies

    def feed(self, ended: threading.Event) -> None:
        """Send to each in turn, some fifty messages a second. What is not known to be stored is not in `sent`."""
        for number, broker in enumerate(itertools.cycle(self.brokers)):
            if ended.wait(0.02):
                return
            body = f"{broker.broker_name}-{number}"
            try:
                with closing(Loader(broker.broker_address)) as loader:
                    loader.put(TOPIC, 0, [Sent(body.encode(), unique_id=f"ID-{body}")])
                    self.sent.append(body)
            except (TransportError, AssertionError):
                continue

    def restart_each(self, count: Callable[[], int], *, seconds: float = 3) -> None:
        """Restart one after the other, each away for so long, while a reader goes on. `count`: what it has read."""
        for broker in [*self.brokers, None]:
            before = count()
            wait_until(lambda before=before: count() > before + 50, within=120, what="the reader goes on")  # type: ignore[misc]
            if isinstance(broker, Apache):
                broker.bounce(seconds)
            elif broker is not None:
                broker.stop()
                threading.Event().wait(seconds)
                broker.start_again()


@contextmanager
def embedded_pair(directory: Path) -> Iterator[Pair]:
    """Two embedded brokers, and in front of them a name server that names those which answer it."""
    brokers = [Embedded(directory / name, broker_name=name) for name in NAMES]

    def ask(request: Command) -> list[dict[str, Any]]:
        found = []
        for broker in brokers:
            try:
                with Bare(broker.broker_address) as asking:
                    answer = asking.ask(request.code, **(request.fields or {}))
            except OSError:
                continue
            if answer.code == 0:
                found.append(json.loads(answer.body))
        return found

    def answer(request: Command) -> Command:
        some = ask(request)
        merged: dict[str, Any]
        if request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
            merged = {name: [one for data in some for one in data[name]] for name in ("queueDatas", "brokerDatas")}
        else:
            merged = {"brokerAddrTable": {name: one for data in some for name, one in data["brokerAddrTable"].items()}}
        code = ResponseCode.SUCCESS if some else ResponseCode.TOPIC_NOT_EXIST
        return Command.response(request, code, body=json.dumps(merged).encode())

    server = Scripted(answer)
    server.routes = answer
    try:
        yield Pair(brokers, server.address)
    finally:
        server.close()
        for broker in brokers:
            broker.stop()


@contextmanager
def apache_pair(directory: Path) -> Iterator[Pair]:
    """Two brokers of Apache RocketMQ."""
    first, second = of_tests(directory / "a"), None
    try:
        name_server, options = first.name_server, toolchain.BRIEF
        second = Apache(directory / "b", name_server=name_server, broker_name=NAMES[1], options=options)
        yield Pair([first, second], name_server)
    finally:
        for broker in (second, first):
            if broker is not None:
                broker.stop()
