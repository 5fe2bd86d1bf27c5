from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.policy import Breaker
from rocketapp.state.breaker import BreakerState, Circuit


def opened(state: BreakerState, *calls: tuple[float, int]) -> list[float | None]:
    return [state.failed(now, handled) for now, handled in calls]


def test_it_opens_at_its_number_of_failures_within_the_time() -> None:
    state = BreakerState(Breaker(failures=3, within=10, pause=5))
    assert opened(state, (0, 0), (8, 0), (11, 0)) == [None, None, None]
    assert opened(state, (17, 0)) == [9]
    assert state.circuit is Circuit.OPEN


def test_failures_that_are_a_small_share_of_all_calls_do_not_open_it() -> None:
    state = BreakerState(Breaker(failures=2, within=10, pause=5, share=0.5))
    assert opened(state, (0, 100), (1, 103)) == [None, None]
    assert opened(state, (2, 105)) == [1]


def test_while_it_is_open_failures_of_earlier_calls_change_nothing() -> None:
    state = BreakerState(Breaker(failures=1, within=10, pause=5))
    assert opened(state, (0, 0), (1, 0)) == [0, None]


def test_half_open_one_failure_opens_it_again_and_a_success_closes_it() -> None:
    state = BreakerState(Breaker(failures=2, within=10, pause=5))
    opened(state, (0, 0), (0, 0))
    state.probe()
    assert opened(state, (5, 9)) == [5]
    state.probe()
    state.close()
    assert state.circuit is Circuit.CLOSED
    assert opened(state, (6, 9)) == [None]
    assert opened(state, (7, 9)) == [1]


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 5)), max_size=30), st.integers(1, 5), st.floats(0.1, 1))
def test_it_opens_exactly_when_the_latest_failures_say_so(
    steps: list[tuple[float, int]], failures: int, share: float
) -> None:
    state = BreakerState(Breaker(failures=failures, within=60, pause=1, share=share))
    seen: list[tuple[float, int]] = []
    now = 0.0
    handled = 0
    for wait, done in steps:
        now, handled = now + wait, handled + done
        seen.append((now, handled))
        latest = seen[-failures:]
        calls = failures + handled - latest[0][1]
        expected = len(latest) == failures and now - latest[0][0] <= 60 and failures >= share * calls
        assert (state.failed(now, handled) is not None) == expected
        if expected:
            return


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"failures": 0}, "failures=0): give a whole number, 1 or more"),
        ({"failures": 10**30}, "give 1000000 at most"),
        ({"pause": 10**400}, "give seconds, more than 0"),
        ({"failures": 1.5}, "failures=1.5): give a whole number, 1 or more"),
        ({"within": 0}, "within=0): give seconds, more than 0"),
        ({"pause": -1}, "pause=-1): give seconds, more than 0"),
        ({"pause": "30"}, "pause='30'): give seconds, more than 0"),
        ({"within": float("inf")}, "within=inf): give seconds, more than 0"),
        ({"share": 0}, "share=0): give a share of all calls, above 0 and up to 1"),
        ({"share": 20}, "share=20): give a share of all calls, above 0 and up to 1"),
    ],
)
def test_a_wrong_breaker_is_refused_with_the_mend(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        Breaker(**{"failures": 20, "within": 60, "pause": 30, **arguments})
    assert text in str(refused.value)
