"""The fault runs on the embedded broker, and those of effects outside: small, or full with ROCKETAPP_FAULTS=full."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import effects, restarts, scenarios
from tests.faults.conftest import Tell
from tests.peers.clusters import Embedded
from tests.peers.java_client import Peer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600 if scenarios.scale() is scenarios.FULL else 900)]


def test_nothing_acknowledged_is_lost_when_the_embedded_broker_is_killed(
    peer: Peer, tmp_path: Path, tell: Tell
) -> None:
    assert tell(scenarios.broker_kills(peer, tmp_path, scenarios.scale()))["lost"] == 0


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
