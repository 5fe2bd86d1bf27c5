"""Which messages are suspected of having ended a process, and which are guilty."""

from __future__ import annotations

from rocketapp.state.crashes import FORGOTTEN_AFTER, MOST, Span, Suspect, after_crash, still_suspected

QUEUE, OTHER = "group topic@broker:0", "group other@broker:1"


def test_everything_in_hand_is_suspected_and_nothing_of_it_is_guilty() -> None:
    span = Span(QUEUE, 4, 6)
    # Each of several workers notes down the run of which it takes items.
    suspects = after_crash({}, [span, span, span], 1.0)
    assert suspects == {QUEUE: {offset: Suspect(1, 0, 1.0) for offset in (4, 5, 6)}}
    assert not any(one.is_guilty(reconsume_times=0, retries=0) for one in suspects[QUEUE].values())


def test_a_suspect_that_was_in_hand_alone_is_blamed_and_guilty_after_its_retries() -> None:
    suspects = after_crash({}, [Span(QUEUE, 4, 6)], 1.0)
    for crashes in (2, 3):
        assert not suspects[QUEUE][5].is_guilty(reconsume_times=0, retries=2)
        suspects = after_crash(suspects, [Span(QUEUE, 5, 5)], 2.0)
        assert suspects[QUEUE][5] == Suspect(crashes, crashes - 1, 2.0)
    assert suspects[QUEUE][4] == Suspect(1, 0, 1.0)
    assert suspects[QUEUE][5].is_guilty(reconsume_times=0, retries=2)
    assert suspects[QUEUE][5].is_guilty(reconsume_times=1, retries=3)
    assert not suspects[QUEUE][5].is_guilty(reconsume_times=0, retries=-1)


def test_what_ran_beside_a_suspect_is_suspected_too_and_makes_its_guilt_uncertain_for_a_while() -> None:
    suspects = after_crash({}, [Span(QUEUE, 4, 6)], 1.0)
    for crashes in (2, 3, 4):
        assert not suspects[QUEUE][5].is_guilty(reconsume_times=0, retries=0)
        suspects = after_crash(suspects, [Span(QUEUE, 5, 5), Span(OTHER, 7, 9)], 2.0)
        assert suspects[QUEUE][5] == Suspect(crashes, 0, 2.0)
    assert suspects[QUEUE][5].is_guilty(reconsume_times=0, retries=0)
    assert suspects[OTHER] == {offset: Suspect(1, 0, 2.0) for offset in (7, 8, 9)}


def test_the_culprit_that_came_beside_a_slow_suspect_is_found_and_the_suspect_is_not_guilty() -> None:
    suspects = after_crash({}, [Span(QUEUE, 5, 5)], 1.0)
    suspects = after_crash(suspects, [Span(QUEUE, 5, 5), Span(OTHER, 7, 7)], 2.0)
    for _ in range(3):  # now each of them runs alone
        suspects = after_crash(suspects, [Span(OTHER, 7, 7)], 3.0)
    assert suspects[OTHER][7].is_guilty(reconsume_times=0, retries=2)
    assert not suspects[QUEUE][5].is_guilty(reconsume_times=0, retries=0)


def test_of_two_suspects_that_ran_side_by_side_neither_is_blamed() -> None:
    both = [Span(QUEUE, 5, 5), Span(OTHER, 7, 7)]
    suspects = after_crash({}, both, 1.0)
    for _ in range(9):
        suspects = after_crash(suspects, both, 2.0)
    assert suspects == {QUEUE: {5: Suspect(1, 0, 2.0)}, OTHER: {7: Suspect(1, 0, 2.0)}}


def test_deaths_of_other_causes_make_no_message_guilty() -> None:
    """A process that is killed again and again with the same messages in hand."""
    suspects = after_crash({}, [Span(QUEUE, 4, 6)], 1.0)
    for _ in range(50):
        suspects = after_crash(suspects, [Span(QUEUE, 4, 6)], 2.0)
    assert not any(one.is_guilty(reconsume_times=0, retries=0) for one in suspects[QUEUE].values())


def test_suspects_are_bounded_and_forgotten_after_a_day() -> None:
    suspects = after_crash({}, [Span(QUEUE, 0, 10 * MOST), Span("other", 0, 9)], 1.0)
    assert sum(map(len, suspects.values())) <= MOST
    assert still_suspected(suspects, 1.0 + FORGOTTEN_AFTER) == {}
    assert still_suspected(suspects, FORGOTTEN_AFTER) == {queue: found for queue, found in suspects.items() if found}
