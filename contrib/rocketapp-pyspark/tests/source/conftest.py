"""The brokers that the source is tested against, started once, when first asked for."""

from __future__ import annotations

import itertools
import os
import ssl
import threading
from collections.abc import Callable, Iterator

import pytest

from pyspark_rocketmq.cluster import CONNECTIONS
from pyspark_rocketmq.cluster import Cluster as View
from pyspark_rocketmq.options import ReadOptions, read_options
from rocketapp.wire.command import Command
from tests.conftest import common
from tests.peers import toolchain
from tests.peers.bare import Bare
from tests.peers.clusters import SHARE, Apache, Cluster, Embedded, Share
from tests.peers.loading import Loader
from tests.peers.scripted import Scripted


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    broker = Embedded(tmp_path_factory.mktemp("embedded"))
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def _share() -> Iterator[Share]:
    yield SHARE
    SHARE.give_back()


@pytest.fixture(scope="module")
def apache(java: None, _share: Share, tmp_path_factory: pytest.TempPathFactory) -> Apache:
    problem = toolchain.missing()
    if problem is not None:
        pytest.skip(f"Apache RocketMQ cannot run here: {problem}")
    return _share.take(common(tmp_path_factory))


@pytest.fixture(autouse=True)
def _no_idle_connections() -> Iterator[None]:
    """What a test leaves in the pool ends with it."""
    yield
    CONNECTIONS.close()


@pytest.fixture(params=["embedded", "apache"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each broker in turn."""
    broker: Cluster = request.getfixturevalue(request.param)
    return broker


_numbers = itertools.count(1)


class Topics:
    """Makes topics of their own for a test, and reads them as the options say, without Spark."""

    def __init__(self, cluster: Cluster) -> None:
        self.name_server, self._broker = cluster.name_server, cluster.broker_address
        self.loader = Loader(self._broker)

    def new(self, queues: int = 1) -> str:
        """A topic that no other test uses, in no process: all of them share Apache RocketMQ."""
        topic = f"topic-{os.getpid()}-{next(_numbers)}"
        self.loader.make_topic(topic, queues)
        return topic

    def options(self, **given: object) -> ReadOptions:
        texts = {name.replace("__", "."): str(value) for name, value in given.items()}
        streaming = texts.pop("streaming", "") == "True"
        return read_options({"nameServer": self.name_server, **texts}, streaming=streaming)

    def committed(self, topic: str, group: str) -> int:
        """The offset of queue 0 that the group committed; -1 for none."""
        with Bare(self._broker) as asking:
            return asking.committed(topic, group, 0)

    def pause(self) -> None:
        """Give the broker a moment."""
        threading.Event().wait(0.1)

    def view(self, options: ReadOptions) -> View:
        return View(options.reach)


@pytest.fixture
def topics(cluster: Cluster) -> Iterator[Topics]:
    """On each broker in turn."""
    made = Topics(cluster)
    yield made
    made.loader.close()


@pytest.fixture
def here(embedded: Embedded) -> Iterator[Topics]:
    """On the embedded broker, for what does not depend on the broker."""
    made = Topics(embedded)
    yield made
    made.loader.close()


@pytest.fixture
def script() -> Iterator[Callable[..., Scripted]]:
    """Starts scripted servers."""
    started: list[Scripted] = []

    def start(answer: Callable[[Command], Command | bytes | None], tls: ssl.SSLContext | None = None) -> Scripted:
        started.append(Scripted(answer, tls))
        return started[-1]

    yield start
    for server in started:
        server.close()
