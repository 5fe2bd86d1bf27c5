"""The fault runs on both brokers, within the suite: small by default, the full figures with ROCKETAPP_FAULTS=full."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.faults import mixed, restarts, scenarios, storms
from tests.faults.conftest import Tell
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.java_client import Peer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if scenarios.scale() is scenarios.FULL else 900)]


@pytest.mark.parametrize(
    ("cluster", "kind", "workers"),
    [("apache", "async", 1), ("embedded", "sync", 1), ("embedded", "async", 2)],
    ids=["apache-async", "embedded-sync", "embedded-two workers"],
    indirect=["cluster"],
)
def test_every_message_of_a_backlog_is_handled_exactly_once(
    cluster: Cluster, peer: Peer, tmp_path: Path, tell: Tell, kind: str, workers: int
) -> None:
    figures = tell(scenarios.deliveries(cluster, peer, tmp_path, scenarios.scale(), kind=kind, workers=workers))
    assert (figures["lost"], figures["repeated"]) == (0, 0)


def test_order_holds_while_a_member_is_killed(
    apache: Apache, embedded: Embedded, peer: Peer, tmp_path: Path, tell: Tell
) -> None:
    # A dead member's locks live on for a while: that wait is spent on both brokers at once.
    with ThreadPoolExecutor(2) as both:
        runs = [
            both.submit(scenarios.order, cluster, peer, tmp_path / cluster.name, scenarios.scale())
            for cluster in (apache, embedded)
        ]
    figures = [tell(run.result()) for run in runs]
    assert [(one["lost"], one["order_violations"], one["overlaps"]) for one in figures] == [(0, 0, 0)] * 2


def test_nothing_is_lost_when_a_consumer_is_killed(
    apache: Apache, embedded: Embedded, peer: Peer, tmp_path: Path, tell: Tell
) -> None:
    with ThreadPoolExecutor(2) as both:
        runs = [
            both.submit(scenarios.consumer_kills, cluster, peer, tmp_path / cluster.name, scenarios.scale())
            for cluster in (apache, embedded)
        ]
    assert [tell(run.result())["lost"] for run in runs] == [0, 0]


def test_a_storm_over_orderly_handlers_breaks_no_promise(
    apache: Apache, embedded: Embedded, peer: Peer, tmp_path: Path, tell: Tell
) -> None:
    storm = storms.FULL_ORDERLY if scenarios.scale() is scenarios.FULL else storms.TINY_ORDERLY
    with ThreadPoolExecutor(2) as both:
        runs = [
            both.submit(storms.orderly, cluster, peer, tmp_path / cluster.name, storm) for cluster in (apache, embedded)
        ]
    figures = [tell(run.result()) for run in runs]
    assert [(one["lost"], one["order_violations"], one["overlaps"]) for one in figures] == [(0, 0, 0)] * 2


def test_a_rolling_restart_and_a_mixed_group_lose_nothing(
    apache: Apache, embedded: Embedded, peer: Peer, tmp_path: Path, tell: Tell
) -> None:
    with ThreadPoolExecutor(2) as both:
        changes, rate = (50, 500) if scenarios.scale() is scenarios.FULL else (3, 80)
        runs = [
            both.submit(restarts.rolling, embedded, peer, tmp_path / "rolling", rate=rate, rounds=1),
            both.submit(mixed.mixed, apache, peer, tmp_path / "mixed", changes=changes, rate=rate),
        ]
    rolling, mixing = (tell(run.result()) for run in runs)
    assert (rolling["lost"], mixing["lowered_by_ours"]) == (0, 0)
