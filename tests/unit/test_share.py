"""Processes that test against Apache RocketMQ share one broker, which ends with the last share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.peers import clusters
from tests.peers.clusters import Share


class StandIn:
    """Stands for a broker: its directory is there while it runs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def stop(self) -> None:
        self.directory.rmdir()


def test_the_first_share_starts_a_broker_and_the_last_one_stops_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "of_tests", StandIn)
    one, other = Share(), Share()
    place = one.take(tmp_path).directory
    assert other.take(tmp_path).directory == one.take(tmp_path).directory == place
    one.give_back()
    one.give_back()
    assert place.exists()
    other.give_back()
    assert not place.exists()
    assert one.take(tmp_path).directory != place
    one.give_back()
    assert list(tmp_path.glob("apache-*")) == []
