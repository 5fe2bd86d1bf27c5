from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.subscription import Start
from rocketapp.state.start_position import Edge, StartAt, begin_anew, correct, start_at
from tests.cases import cases

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@cases(
    "topic, start, joined, expected",
    [
        ("t", "first", None, Edge.MIN),
        ("t", "last", None, Edge.MAX),
        ("t", NOON, None, 1_767_268_800_000),
        ("t", "first", 1e9, Edge.MIN),
        ("t", "last", 1e9, 999_999_940_000),
        ("t", NOON, 1e9, 999_999_940_000),
        ("t", NOON, 2e9, 1_767_268_800_000),
        ("%RETRY%g", "last", None, Edge.MIN),
        ("%RETRY%g", "last", 1e9, Edge.MIN),
    ],
)
def test_where_a_group_without_an_offset_begins(
    topic: str, start: Start, joined: float | None, expected: StartAt
) -> None:
    assert start_at(topic, start, joined=joined) == expected


@given(
    st.lists(st.floats(0, 2e9), max_size=20),
    st.floats(1e6, 2e9),
    st.floats(-60, 60),
    st.sampled_from(["last", NOON]),
)
def test_of_a_queue_that_appears_after_the_join_nothing_that_came_since_is_missed(
    stored: list[float], joined: float, skew: float, start: Start
) -> None:
    """`skew`: seconds by which the broker's clock, which dates the messages, is behind."""
    place = start_at("t", start, joined=joined)
    assert not isinstance(place, Edge)
    read = [time for time in stored if int((time - skew) * 1000) >= place]
    assert [time for time in stored if time > joined] == [time for time in read if time > joined]
    if start == "last":
        assert all(time >= joined - 121 for time in read)


def test_beyond_the_end_the_same_queue_goes_on_there_and_an_unknown_one_where_start_says() -> None:
    bounds = {"next_offset": 0, "min_offset": 5, "max_offset": 95}
    same, unknown = correct(100, **bounds, is_same=True), correct(100, **bounds, is_same=False)
    assert (same.offset, same.by_start, unknown.by_start) == (95, False, True)
    assert same.reason == "offset 100 is 5 beyond the broker's end 95: it lost its tail; 5 offsets are given out again"
    assert "none of its 90" in unknown.reason


@pytest.mark.parametrize(("offset", "says"), [(100, "5 beyond the broker's end 95"), (95, "in another store")])
def test_another_queue_of_the_name_is_read_from_its_first_offset(offset: int, says: str) -> None:
    correction = begin_anew(offset, min_offset=5, max_offset=95)
    assert (correction.offset, correction.by_start) == (5, False)
    assert says in correction.reason
    assert "its records are others: 90 are read, from its first offset on" in correction.reason


def test_an_old_broker_that_suggests_zero_is_not_believed() -> None:
    assert correct(100, next_offset=0, min_offset=0, max_offset=95, is_same=True).offset == 95


def test_messages_that_were_deleted_are_passed_over() -> None:
    correction = correct(5, next_offset=50, min_offset=50, max_offset=90, is_same=True)
    assert correction.offset == 50
    assert "45 were deleted unread" in correction.reason


def test_an_operators_reset_is_followed() -> None:
    assert correct(60, next_offset=3, min_offset=0, max_offset=90, is_same=True).offset == 3


@given(st.integers(0, 200), st.integers(0, 100), st.integers(0, 100))
def test_a_correction_outside_the_bounds_leads_back_inside(offset: int, first: int, length: int) -> None:
    end = first + length
    corrected = correct(offset, next_offset=0, min_offset=first, max_offset=end, is_same=True).offset
    if not first <= offset <= end:
        assert first <= corrected <= end
        # Nothing that was read already is read again, except what the broker does not have any more.
        assert corrected == min(max(offset, first), end)
