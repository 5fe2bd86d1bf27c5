from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.state.calm import LONGEST_CALM, REGROUP, Calm


def test_the_list_of_a_broker_that_came_back_is_not_acted_on_for_a_moment() -> None:
    calm = Calm()
    assert calm.is_over("broker-a", 100.0)
    calm.disturb("broker-a", 200.0)
    assert not calm.is_over("broker-a", 200.0 + REGROUP - 0.1)
    assert calm.is_over("broker-b", 200.0)
    assert calm.next_end(200.0) == 200.0 + REGROUP
    assert calm.is_over("broker-a", 200.0 + REGROUP)
    assert calm.next_end(200.0 + REGROUP) is None


@given(st.lists(st.floats(0.0, 3.0), min_size=1, max_size=60))
def test_a_row_of_disturbances_ends_in_time(pauses: list[float]) -> None:
    calm, now, began = Calm(), 10.0, 10.0
    for pause in pauses:
        if now > (calm.next_end(0.0) or 0.0) + REGROUP:
            began = now
        calm.disturb("broker-a", now)
        end = calm.next_end(0.0)
        assert end is not None and end <= began + LONGEST_CALM
        now += pause
