"""The last 15 minutes of handlers: differences of counters, whatever processes came and went."""

from __future__ import annotations

import pytest

from rocketapp.operate.history import SPAN, HandlerKey, History, calls_of, quantile, since
from rocketapp.plugin import AppSnapshot
from rocketapp.plugins.counts import BOUNDS, CallKey, Counts, Histogram
from tests.unit.operate.views import queue_at, snapshot_of

SETTLE = HandlerKey("", "shop", "orders", "app:settle")


def history_of(*snapshots: AppSnapshot, every: float = 10.0) -> History:
    history = History()
    for number, snapshot in enumerate(snapshots):
        history = history.with_sample(number * every, snapshot, Counts())
    return history


def test_a_step_is_what_was_done_between_two_samples() -> None:
    steps = history_of(*(snapshot_of(queue_at(10), handled=count) for count in (0, 50, 50, 80))).steps(SETTLE)
    assert [one.done for one in steps] == [50, 0, 30]
    assert [one.rate for one in steps] == [5.0, 0.0, 3.0]
    assert [one.lag for one in steps] == [30, 30, 30]
    assert [one.failed for one in steps] == [0, 0, 0]  # what had failed before is not of these minutes


def test_what_is_older_than_15_minutes_is_forgotten() -> None:
    steps = history_of(*(snapshot_of(handled=count) for count in range(500))).steps(SETTLE)
    assert len(steps) == SPAN / 10
    assert sum(one.done for one in steps) == SPAN / 10
    assert len(since(steps, 60.0)) == 6


def test_a_handler_that_came_with_an_edit_begins_at_nothing() -> None:
    history = history_of(snapshot_of(topic="old"), snapshot_of(handled=4))
    assert [one.done for one in history.steps(SETTLE)] == [4]
    assert history.steps(HandlerKey("", "shop", "old", "app:settle")) == []


def test_a_lag_that_is_not_known_is_not_guessed() -> None:
    steps = history_of(snapshot_of(), snapshot_of(queue_at(10), queue_at(None, queue_id=1))).steps(SETTLE)
    assert [one.lag for one in steps] == [None]


def test_durations_are_those_of_the_calls_between_two_samples() -> None:
    counts, history = Counts(), History()
    ok, failed = CallKey("orders", "shop", "app:settle"), CallKey("orders", "shop", "app:settle", error="KeyError")
    for number, seconds in enumerate((3.0, 0.02, 0.02)):
        for which in (ok, failed):
            counts.histograms.setdefault(which, Histogram()).add(seconds)
        history = history.with_sample(10.0 * number, snapshot_of(), counts)
    steps = history.steps(SETTLE)
    assert [sum(one.calls) for one in steps] == [2, 2]
    assert quantile(calls_of(steps), 0.95) == pytest.approx(0.025, rel=0.1)


@pytest.mark.parametrize("seconds", [0.001, 0.02, 0.3, 4.0])
def test_a_quantile_lies_between_the_bounds_of_its_bucket(seconds: float) -> None:
    histogram = Histogram()
    for _ in range(10):
        histogram.add(seconds)
    low = max((bound for bound in BOUNDS if bound < seconds), default=0.0)
    high = min(bound for bound in BOUNDS if bound >= seconds)
    found = quantile(histogram.buckets, 0.5)
    assert found is not None
    assert low <= found <= high


def test_a_quantile_of_no_calls_is_none_and_above_all_bounds_it_is_infinite() -> None:
    assert quantile([0] * (len(BOUNDS) + 1), 0.5) is None
    assert quantile([0] * len(BOUNDS) + [1], 0.5) == float("inf")
