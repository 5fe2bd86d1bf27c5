"""The fault runs on the worst disk, small: the power fails at calls of a script, or one of its calls does."""

from __future__ import annotations

import re

import pytest

from tests.faults import disks

# Those of the checkpoint and of consume queues are in test_store_crashes.
SYNCED = (
    *("commitlog/", "commitlog/[0-9]+", "config/", "index/[0-9]+"),
    *("config/consumerOffset.json.tmp", "config/delayOffset.json.tmp", "config/timercheck.tmp"),
    *("config/subscriptionGroup.json.tmp", "config/subscriptionGroup.json.changes"),
    *("config/topics.json.tmp", "config/topics.json.changes"),
)


def test_no_loss_of_power_takes_what_it_must_not() -> None:
    figures = disks.power_losses(60, every=9)
    assert figures["sync"]["most_missing"] == 0
    assert figures["async"]["most_missing"] > 0


@pytest.mark.parametrize("part", SYNCED)
def test_each_sync_that_is_left_out_is_noticed(part: str) -> None:
    with pytest.raises(Exception) as noticed:
        for seed in range(6):
            disks.power_losses(300, every=7, seed=seed, ignored=re.compile(part).fullmatch)
    assert any("at call" in note for note in noticed.value.__notes__)


def test_no_call_that_fails_once_costs_an_acknowledged_message() -> None:
    figures = disks.failing_calls(30, every=23)
    assert figures["sync"]["sends_in_doubt"] > 0
    assert figures["sync"]["sends_refused"] > 0
