from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.policy import Breaker
from rocketapp.state.breaker import RecentFailures
from tests.cases import cases


def enough(failures: RecentFailures, *calls: tuple[float, int]) -> list[float | None]:
    """After each of these failures: in how many seconds there were enough of them, if there were."""
    found = list[float | None]()
    for now, handled in calls:
        failures.add(now, handled)
        found.append(failures.seconds if failures.are_enough else None)
    return found


def test_it_opens_at_its_number_of_failures_within_the_time() -> None:
    failures = RecentFailures(Breaker(failures=3, within=10, pause=5))
    assert enough(failures, (0, 0), (8, 0), (11, 0), (17, 0)) == [None, None, None, 9]


def test_failures_that_are_a_small_share_of_all_calls_do_not_open_it() -> None:
    failures = RecentFailures(Breaker(failures=2, within=10, pause=5, share=0.5))
    assert enough(failures, (0, 100), (1, 103), (2, 105)) == [None, None, 1]


def test_it_begins_to_count_anew_when_it_was_closed() -> None:
    failures = RecentFailures(Breaker(failures=2, within=10, pause=5))
    assert enough(failures, (0, 0), (0, 0)) == [None, 0]
    failures.clear()
    assert enough(failures, (6, 9), (7, 9)) == [None, 1]


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 5)), max_size=30), st.integers(1, 5), st.floats(0.1, 1))
def test_it_opens_exactly_when_the_latest_failures_say_so(
    steps: list[tuple[float, int]], failures: int, share: float
) -> None:
    latest_failures = RecentFailures(Breaker(failures=failures, within=60, pause=1, share=share))
    seen: list[tuple[float, int]] = []
    now = 0.0
    handled = 0
    for wait, done in steps:
        now, handled = now + wait, handled + done
        seen.append((now, handled))
        latest = seen[-failures:]
        calls = failures + handled - latest[0][1]
        expected = len(latest) == failures and now - latest[0][0] <= 60 and failures >= share * calls
        latest_failures.add(now, handled)
        assert latest_failures.are_enough == expected


@cases(
    "arguments, text",
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
