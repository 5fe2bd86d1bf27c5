"""The fault runs within the suite: small by default, the full figures with ROCKETAPP_FAULTS=full."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.faults import effects, mixed, restarts, scenarios, storms
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.java_client import Peer

Tell = Callable[[dict[str, Any]], dict[str, Any]]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if scenarios.scale() is scenarios.FULL else 240)]


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


def test_nothing_acknowledged_is_lost_when_the_embedded_broker_is_killed(
    peer: Peer, tmp_path: Path, tell: Tell
) -> None:
    assert tell(scenarios.broker_kills(peer, tmp_path, scenarios.scale()))["lost"] == 0


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


def test_a_rolling_restart_and_a_mixed_group_lose_and_repeat_nothing_short(
    apache: Apache, embedded: Embedded, peer: Peer, tmp_path: Path, tell: Tell
) -> None:
    with ThreadPoolExecutor(2) as both:
        changes = 50 if scenarios.scale() is scenarios.FULL else 3
        runs = [
            both.submit(restarts.rolling, embedded, peer, tmp_path / "rolling", rate=500, rounds=1),
            both.submit(mixed.mixed, apache, peer, tmp_path / "mixed", changes=changes),
        ]
    rolling, mixing = (tell(run.result()) for run in runs)
    assert (rolling["lost"], mixing["lowered_by_ours"]) == (0, 0)


def test_a_member_that_joins_after_the_embedded_broker_restarted_does_not_overlap(
    peer: Peer, tmp_path: Path, tell: Tell
) -> None:
    figures = tell(restarts.broker_pause(peer, tmp_path, (0.0,)))
    assert (figures["lost"], figures["order_violations"], figures["overlaps"]) == (0, 0, 0)


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_an_effect_with_its_mark_in_one_transaction_is_there_exactly_once(
    embedded: Embedded, tmp_path: Path, tell: Tell, kind: str
) -> None:
    figures = tell(effects.exactly_once(embedded, tmp_path, kind, effects.harm()))
    assert (figures["missing_effects"], figures["duplicate_effects"]) == (0, 0)


def test_a_kill_repeats_at_most_the_message_in_hand(embedded: Embedded, tmp_path: Path, tell: Tell) -> None:
    figures = tell(effects.marked_elsewhere(embedded, tmp_path, "redis", effects.harm()))
    assert figures["missing_effects"] == 0
    assert figures["duplicate_effects"] <= figures["kills"]


def test_the_outbox_loses_nothing_and_keeps_the_order_of_keys(embedded: Embedded, tmp_path: Path, tell: Tell) -> None:
    assert tell(effects.outbox(embedded, tmp_path, "postgresql", effects.harm()))["lost"] == 0
