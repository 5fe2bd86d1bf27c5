from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.subscription import Start
from rocketapp.state.queue_identity import Landmark
from rocketapp.state.start_position import Edge, StartAt, beyond_the_end, correct, start_at

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("topic", "start", "joined", "expected"),
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


ONE, OTHER = Landmark(7, 1_767_268_800_000, "A"), Landmark(7, 1_767_268_900_000, "B")


@pytest.mark.parametrize(
    ("first", "known", "found", "offset"),
    [
        (0, ONE, ONE, 95),  # the same queue, without its tail
        (5, ONE, ONE, 95),
        (0, ONE, OTHER, 0),  # another queue
        (5, ONE, OTHER, 5),
        (0, ONE, None, 0),
        (50, ONE, None, 95),  # that record was deleted by its age
    ],
)
def test_where_to_go_on_beyond_the_end_is_said_by_a_record_that_was_pulled(
    first: int, known: Landmark, found: Landmark | None, offset: int
) -> None:
    correction = beyond_the_end(100, min_offset=first, max_offset=95, known=known, found=found)
    assert (correction.offset, correction.by_start) == (offset, False)
    assert "5 beyond the broker's end 95" in correction.reason
    unknown = beyond_the_end(100, min_offset=first, max_offset=95, known=None, found=None)
    assert unknown.by_start


def test_an_old_broker_that_suggests_zero_is_not_believed() -> None:
    assert correct(100, next_offset=0, min_offset=0, max_offset=95).offset == 95


def test_messages_that_were_deleted_are_passed_over() -> None:
    correction = correct(5, next_offset=50, min_offset=50, max_offset=90)
    assert correction.offset == 50
    assert "45 were deleted unread" in correction.reason


def test_an_operators_reset_is_followed() -> None:
    assert correct(60, next_offset=3, min_offset=0, max_offset=90).offset == 3


@given(st.integers(0, 200), st.integers(0, 100), st.integers(0, 100))
def test_a_correction_outside_the_bounds_leads_back_inside(offset: int, first: int, length: int) -> None:
    end = first + length
    bounds = {"min_offset": first, "max_offset": end}
    corrected = correct(offset, next_offset=0, **bounds).offset
    if offset > end:
        assert corrected == beyond_the_end(offset, known=ONE, found=ONE, **bounds).offset
    if not first <= offset <= end:
        assert first <= corrected <= end
        # Nothing that was read already is read again, except what the broker does not have any more.
        assert corrected == min(max(offset, first), end)
