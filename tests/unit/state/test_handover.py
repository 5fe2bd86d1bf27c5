from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.state.handover import LONGEST_WAIT, MOMENT, RUN_ON, may_begin, next_look

OFFSETS = st.none() | st.integers(0, 5)


def test_an_empty_queue_is_begun_after_a_moment_and_not_before() -> None:
    assert not may_begin(0.0, 10, 10)
    assert may_begin(MOMENT, 10, 10)


def test_a_queue_with_work_in_it_is_begun_when_the_previous_owner_must_be_through() -> None:
    assert not may_begin(1.0, 9, 10)
    assert may_begin(LONGEST_WAIT, 9, 10)
    assert LONGEST_WAIT > RUN_ON


def test_an_offset_that_is_not_known_proves_nothing() -> None:
    assert not may_begin(1.0, None, 0)
    assert not may_begin(1.0, 0, None)


@given(OFFSETS, OFFSETS)
def test_looks_go_on_until_the_queue_is_begun_and_are_few(committed: int | None, end: int | None) -> None:
    waited, looks = 0.0, 0
    while not may_begin(waited, committed, end):
        waited += next_look(waited)
        looks += 1
    assert waited <= LONGEST_WAIT + 0.02
    assert looks <= 8
