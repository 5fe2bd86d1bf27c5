"""The long waits, shared by every test that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.conformance.long_waits import LongWaits
from tests.parts import shares
from tests.peers.clusters import Cluster
from tests.peers.java_client import Peer


class _Stories:
    """The long waits of each cluster, from the first test on that runs beside them."""

    def __init__(self, peer: Peer, directories: pytest.TempPathFactory) -> None:
        self._peer, self._directories = peer, directories
        self._pool = ThreadPoolExecutor(2)
        self._begun: dict[str, Future[LongWaits]] = {}

    def on(self, cluster: Cluster) -> Future[LongWaits]:
        """What is there when they have begun; the first call begins them, and one after they could not begin."""
        before = self._begun.get(cluster.name)
        if before is None or (before.done() and before.exception() is not None):
            directory = self._directories.mktemp(f"waits-{cluster.name}")
            self._begun[cluster.name] = self._pool.submit(LongWaits, cluster, self._peer, directory)
        return self._begun[cluster.name]

    def end(self, name: str) -> None:
        """Their apps, members and loads, which would go on to the end of the run."""
        story = self._begun.pop(name)
        if story.exception() is None:
            story.result().stop()

    def stop(self) -> None:
        for name in list(self._begun):
            self.end(name)
        self._pool.shutdown()


@pytest.fixture(scope="session")
def _stories(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[_Stories]:
    stories = _Stories(peer, tmp_path_factory)
    yield stories
    stories.stop()


@pytest.fixture(autouse=True)
def _waits_begin(request: pytest.FixtureRequest) -> None:
    """They wait while other tests of the same process run."""
    if "cluster" not in request.fixturenames:
        return
    part = shares(request.node.nodeid)
    items = request.session.items
    if any("waits" in getattr(item, "fixturenames", ()) and shares(item.nodeid) == part for item in items):
        stories: _Stories = request.getfixturevalue("_stories")
        stories.on(request.getfixturevalue("cluster"))


@pytest.fixture
def waits(cluster: Cluster, _stories: _Stories, request: pytest.FixtureRequest) -> Iterator[LongWaits]:
    """What the long stories wrote on this cluster; they end behind the last test that reads them."""
    yield _stories.on(cluster).result(300)
    part = shares(request.node.nodeid)
    readers = (item for item in request.session.items if "waits" in getattr(item, "fixturenames", ()))
    if [item for item in readers if shares(item.nodeid) == part][-1] is request.node:
        _stories.end(cluster.name)
