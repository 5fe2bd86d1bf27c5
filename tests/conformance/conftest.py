"""The long waits, shared by every test that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.conformance.long_waits import LongWaits
from tests.conftest import ends_transactions
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.java_client import Peer


@pytest.fixture(scope="session")
def _all_waits(
    apache: Apache, embedded: Embedded, peer: Peer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[LongWaits]]]:
    """The stories on both clusters at once."""
    clusters: tuple[Cluster, ...] = (apache, embedded)
    with ThreadPoolExecutor(2) as both:
        starting = {
            cluster.name: both.submit(LongWaits, cluster, peer, tmp_path_factory.mktemp(f"waits-{cluster.name}"))
            for cluster in clusters
        }
        yield starting
    for start in starting.values():
        if start.exception() is None:
            start.result().stop()


@pytest.fixture(autouse=True)
def _waits_begin(request: pytest.FixtureRequest) -> None:
    """With the first test of these brokers: the stories wait while other tests run."""
    wanted = any("waits" in getattr(item, "fixturenames", ()) for item in request.session.items)
    if wanted and not {"peer", "apache"}.isdisjoint(request.fixturenames) and not ends_transactions(request.node):
        request.getfixturevalue("_all_waits")


@pytest.fixture
def waits(cluster: Cluster, _all_waits: dict[str, Future[LongWaits]]) -> LongWaits:
    """What the long stories wrote on this cluster."""
    return _all_waits[cluster.name].result(300)
