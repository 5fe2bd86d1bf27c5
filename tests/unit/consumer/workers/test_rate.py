from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.consumer.workers.caller import TokenBucket


def test_a_slow_rate_starts_one_at_a_time() -> None:
    bucket = TokenBucket(0.5, 100.0)
    assert bucket.take(100.0)
    assert bucket.wait(101.0) == 1.0
    assert not bucket.take(101.9)
    assert bucket.take(102.0)


def test_after_a_rest_a_tenth_of_a_second_may_start_at_once() -> None:
    bucket = TokenBucket(50, 0.0)
    assert [bucket.take(60.0) for _ in range(7)] == [True] * 5 + [False] * 2


def test_a_batch_is_paid_for_before_the_next_starts() -> None:
    bucket = TokenBucket(10, 0.0)
    assert bucket.take(0.0)
    bucket.spend(9)
    assert not bucket.take(0.9)
    assert bucket.take(1.0)


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.2, 100))
def test_no_stretch_of_time_starts_more_than_the_rate_and_one_burst(waits: list[float], rate: float) -> None:
    bucket = TokenBucket(rate, 0.0)
    now, started = 0.0, list[float]()
    for wait in waits:
        now += wait
        if bucket.take(now):
            started.append(now)
    for first, begin in enumerate(started):
        for last in range(first, len(started)):
            assert last - first + 1 <= max(1.0, rate / 10) + (started[last] - begin) * rate + 1e-6


@given(st.floats(0.1, 1000), st.integers(1, 50))
def test_waiting_as_long_as_told_is_enough(rate: float, debt: int) -> None:
    bucket = TokenBucket(rate, 0.0)
    bucket.spend(debt)
    wait = bucket.wait(0.0)
    assert bucket.take(wait)
