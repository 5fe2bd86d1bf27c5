"""The brokers that the source is tested against, started once, when first asked for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from pyspark_rocketmq.cluster import Cluster as View
from pyspark_rocketmq.options import ReadOptions, read_options
from tests.peers import toolchain
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.loading import Loader


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    broker = Embedded(tmp_path_factory.mktemp("embedded"), start_timeout=60)
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def apache(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Apache]:
    problem = toolchain.missing()
    if problem is not None:
        pytest.skip(f"Apache RocketMQ cannot run here: {problem}")
    broker = Apache(tmp_path_factory.mktemp("apache"))
    yield broker
    broker.stop()


@pytest.fixture(params=["embedded", "apache"])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Each broker in turn."""
    broker: Cluster = request.getfixturevalue(request.param)
    return broker


_numbers = itertools.count(1)


class Topics:
    """Makes topics of their own for a test, and reads them as the options say, without Spark."""

    def __init__(self, cluster: Cluster) -> None:
        self.name_server, self.loader = cluster.name_server, Loader(cluster.broker_address)

    def new(self, queues: int = 1) -> str:
        topic = f"topic-{next(_numbers)}"
        self.loader.make_topic(topic, queues)
        return topic

    def options(self, **given: object) -> ReadOptions:
        texts = {name.replace("__", "."): str(value) for name, value in given.items()}
        streaming = texts.pop("streaming", "") == "True"
        return read_options({"nameServer": self.name_server, **texts}, streaming=streaming)

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
