"""The long waits, shared by every test that reads them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.conformance.long_waits import LongWaits
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.java_client import Peer


@pytest.fixture(scope="session")
def _all_waits(
    apache: Apache, embedded: Embedded, peer: Peer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, LongWaits]]:
    """The stories on both clusters at once: the second cluster's wait is over when the first one's is."""
    clusters: tuple[Cluster, ...] = (apache, embedded)
    places = [tmp_path_factory.mktemp(f"waits-{cluster.name}") for cluster in clusters]
    with ThreadPoolExecutor(2) as both:
        starting = [both.submit(LongWaits, *one) for one in zip(clusters, (peer, peer), places, strict=True)]
    yield {cluster.name: start.result() for cluster, start in zip(clusters, starting, strict=True)}
    for start in starting:
        if start.exception() is None:
            start.result().stop()


@pytest.fixture
def waits(cluster: Cluster, _all_waits: dict[str, LongWaits]) -> LongWaits:
    """What the long stories wrote on this cluster."""
    return _all_waits[cluster.name]
