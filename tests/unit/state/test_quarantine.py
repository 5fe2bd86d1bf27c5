"""Which messages are quarantined after a death, which are known as its cause, and whose turn it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.state.quarantine import (
    FORGOTTEN_AFTER,
    MOST,
    Quarantined,
    Span,
    Turn,
    Turns,
    after_crash,
    still_quarantined,
)

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
    """A process that is killed again and again with the same messages in flight."""
    found = after_crash({}, [Span(QUEUE, 4, 6)], 1.0)
    for _ in range(50):
        found = after_crash(found, [Span(QUEUE, 4, 6)], 2.0)
    assert not any(one.is_the_cause(reconsume_times=0, retries=0) for one in found[QUEUE].values())


def test_the_quarantine_is_bounded_and_forgotten_after_a_day() -> None:
    found = after_crash({}, [Span(QUEUE, 0, 10 * MOST), Span("other", 0, 9)], 1.0)
    assert sum(map(len, found.values())) <= MOST
    assert still_quarantined(found, 1.0 + FORGOTTEN_AFTER) == {}
    assert still_quarantined(found, FORGOTTEN_AFTER) == {queue: found for queue, found in found.items() if found}


class Paused(Turn):
    """Its topic is paused."""

    is_paused = True


def begun(turns: Turns[Turn]) -> list[Turn]:
    return list(iter(turns.next, None))


def test_each_handler_gets_one_at_a_time_in_their_order() -> None:
    turns: Turns[Turn] = Turns()
    first, second, other = Turn(1, is_apart=False), Turn(1, is_apart=False), Turn(2, is_apart=False)
    for turn in (first, second, other):
        turns.add(turn)
    assert begun(turns) == [first, other]
    assert turns.before(second) is first
    turns.remove(other)
    assert begun(turns) == []
    turns.remove(first)
    assert begun(turns) == [second]


def test_those_that_were_in_flight_together_come_first_and_each_of_them_alone() -> None:
    turns: Turns[Turn] = Turns()
    ordinary, paused, apart = Turn(1, is_apart=False), Paused(1, is_apart=True), Turn(2, is_apart=True)
    for turn in (paused, apart, ordinary):
        turns.add(turn)
    assert begun(turns) == [apart], "one that would not begin does not hold up another one"
    assert turns.before(ordinary) is apart
    turns.remove(apart)
    assert begun(turns) == [ordinary], "nor an ordinary one"


@given(st.lists(st.tuples(st.sampled_from(["add", "add apart", "remove"]), st.integers(0, 3)), max_size=40))
def test_nobody_waits_for_nothing_and_no_two_of_a_handler_have_their_turn(steps: list[tuple[str, int]]) -> None:
    turns, known = Turns[Turn](), list[Turn]()
    for step, number in steps:
        if step == "remove":
            for turn in known[number : number + 1]:
                known.remove(turn)
                turns.remove(turn)
        else:
            known.append(Turn(number, is_apart=step == "add apart"))
            turns.add(known[-1])
        begun(turns)
        running = [turn for turn in known if not turn.is_waiting]
        assert len({turn.handler for turn in running}) == len(running)
        assert bool(running) == bool(known)
        assert all(turns.before(turn) in running for turn in known if turn.is_waiting)


def test_the_deaths_of_one_message_are_not_those_of_another_that_has_its_offset_now() -> None:
    found = {QUEUE: {5: Quarantined(3, 2, 1.0, message_id="a")}}
    assert found[QUEUE][5].is_of("a")
    assert not found[QUEUE][5].is_of("b")
    found = after_crash(found, [Span(QUEUE, 5, 5, message_id="b")], 2.0)
    assert found[QUEUE][5] == Quarantined(1, 1, 2.0, message_id="b")
    assert after_crash(found, [Span(QUEUE, 5, 5, message_id="b")], 3.0)[QUEUE][5].crashes == 2
