"""Waits grow, have a bound, and begin anew after success."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.state.backoff import Backoff


def test_waits_double_up_to_the_most_and_begin_anew_after_success() -> None:
    backoff = Backoff(0.1, 1.0)
    assert [round(backoff.next(0.0), 3) for _ in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    backoff.reset()
    assert backoff.next(0.0) == 0.1


@given(st.lists(st.floats(0, 1), max_size=200))
def test_chance_takes_off_half_at_most(chances: list[float]) -> None:
    backoff, full = Backoff(0.5, 30.0), Backoff(0.5, 30.0)
    for chance in chances:
        longest = full.next(0.0)
        assert longest / 2 <= backoff.next(chance) <= longest


def test_years_of_outage_do_not_overflow() -> None:
    backoff = Backoff(1.0, 30.0)
    assert {backoff.next(0.0) for _ in range(5000)} == {1.0, 2.0, 4.0, 8.0, 16.0, 30.0}
