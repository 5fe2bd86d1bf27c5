from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.state.calm import LONGEST_CALM, REGROUP, Calm


def test_after_a_disturbance_nothing_is_decided_for_a_moment() -> None:
    calm = Calm(100.0)
    assert calm.is_over(100.0)
    calm.disturb(200.0)
    assert not calm.is_over(200.0 + REGROUP - 0.1)
    assert calm.is_over(200.0 + REGROUP)


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60))
def test_a_row_of_disturbances_ends_in_time(pauses: list[float]) -> None:
    calm, now, began = Calm(0.0), 10.0, 10.0
    for pause in pauses:
        if now > calm.until + REGROUP:
            began = now
        calm.disturb(now)
        assert calm.until <= began + LONGEST_CALM
        now += pause
