"""Which messages are quarantined after a death, and which are known as its cause."""

from __future__ import annotations

from rocketapp.state.quarantine import FORGOTTEN_AFTER, MOST, Quarantined, Span, after_crash, still_quarantined

QUEUE, OTHER = "group topic@broker:0", "group other@broker:1"


def test_everything_in_hand_is_suspected_and_nothing_of_it_is_the_cause() -> None:
    span = Span(QUEUE, 4, 6)
    # Each of several workers notes down the run of which it takes items.
    found = after_crash({}, [span, span, span], 1.0)
    assert found == {QUEUE: {offset: Quarantined(1, 0, 1.0) for offset in (4, 5, 6)}}
    assert not any(one.is_the_cause(reconsume_times=0, retries=0) for one in found[QUEUE].values())


def test_a_quarantined_message_that_was_in_flight_by_itself_is_blamed_and_the_cause_after_its_retries() -> None:
    found = after_crash({}, [Span(QUEUE, 4, 6)], 1.0)
    for crashes in (2, 3):
        assert not found[QUEUE][5].is_the_cause(reconsume_times=0, retries=2)
        found = after_crash(found, [Span(QUEUE, 5, 5)], 2.0)
        assert found[QUEUE][5] == Quarantined(crashes, crashes - 1, 2.0)
    assert found[QUEUE][4] == Quarantined(1, 0, 1.0)
    assert found[QUEUE][5].is_the_cause(reconsume_times=0, retries=2)
    assert found[QUEUE][5].is_the_cause(reconsume_times=1, retries=3)
    assert not found[QUEUE][5].is_the_cause(reconsume_times=0, retries=-1)


def test_what_ran_beside_is_quarantined_too_and_the_cause_is_uncertain_for_a_while() -> None:
    found = after_crash({}, [Span(QUEUE, 4, 6)], 1.0)
    for crashes in (2, 3, 4):
        assert not found[QUEUE][5].is_the_cause(reconsume_times=0, retries=0)
        found = after_crash(found, [Span(QUEUE, 5, 5), Span(OTHER, 7, 9)], 2.0)
        assert found[QUEUE][5] == Quarantined(crashes, 0, 2.0)
    assert found[QUEUE][5].is_the_cause(reconsume_times=0, retries=0)
    assert found[OTHER] == {offset: Quarantined(1, 0, 2.0) for offset in (7, 8, 9)}


def test_a_cause_that_came_beside_a_slow_quarantined_message_is_found() -> None:
    found = after_crash({}, [Span(QUEUE, 5, 5)], 1.0)
    found = after_crash(found, [Span(QUEUE, 5, 5), Span(OTHER, 7, 7)], 2.0)
    for _ in range(3):  # now each of them runs alone
        found = after_crash(found, [Span(OTHER, 7, 7)], 3.0)
    assert found[OTHER][7].is_the_cause(reconsume_times=0, retries=2)
    assert not found[QUEUE][5].is_the_cause(reconsume_times=0, retries=0)


def test_of_two_in_flight_side_by_side_neither_is_blamed_and_from_then_on_they_are_handled_apart() -> None:
    both = [Span(QUEUE, 5, 5), Span(OTHER, 7, 7)]
    found = after_crash({}, both, 1.0)
    for _ in range(9):
        found = after_crash(found, both, 2.0)
    assert found == {QUEUE: {5: Quarantined(1, 0, 2.0, True)}, OTHER: {7: Quarantined(1, 0, 2.0, True)}}


def test_one_whose_call_lasts_long_is_not_blamed_for_the_death_beside_it() -> None:
    late = [Span(QUEUE, 5, 5), Span(QUEUE, 5, 5, is_late=True)]
    found = after_crash({}, [Span(QUEUE, 5, 5), Span(OTHER, 7, 7)], 1.0)
    for _ in range(3):
        found = after_crash(found, [*late, Span(OTHER, 7, 7)], 2.0)
    assert found[OTHER][7].is_the_cause(reconsume_times=0, retries=2)
    assert found[QUEUE][5] == Quarantined(1, 0, 2.0)
    # With nothing beside it, it is the cause itself.
    assert after_crash(found, late, 3.0)[QUEUE][5] == Quarantined(2, 1, 3.0)


def test_deaths_of_other_causes_blame_no_message() -> None:
    """A process that is killed again and again with the same messages in hand."""
    found = after_crash({}, [Span(QUEUE, 4, 6)], 1.0)
    for _ in range(50):
        found = after_crash(found, [Span(QUEUE, 4, 6)], 2.0)
    assert not any(one.is_the_cause(reconsume_times=0, retries=0) for one in found[QUEUE].values())


def test_the_quarantine_is_bounded_and_forgotten_after_a_day() -> None:
    found = after_crash({}, [Span(QUEUE, 0, 10 * MOST), Span("other", 0, 9)], 1.0)
    assert sum(map(len, found.values())) <= MOST
    assert still_quarantined(found, 1.0 + FORGOTTEN_AFTER) == {}
    assert still_quarantined(found, FORGOTTEN_AFTER) == {queue: found for queue, found in found.items() if found}
