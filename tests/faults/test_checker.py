"""The checker complains about bad histories, and only about those."""

from __future__ import annotations

import pytest

from tests.faults.checker import (
    Event,
    Kill,
    by_key,
    conflicts,
    keys_out_of_order,
    lost,
    overlapping,
    overtaken,
    phantoms,
    repeated,
    unexplained_repeats,
)

A, B = 100, 200
"""Two processes."""


def handled(at: float, offset: int, *, pid: int = A, queue: int = 0, number: int | None = None) -> list[Event]:
    """A message that is started and done half a second later."""
    number = offset if number is None else number
    return [Event("start", at, pid, queue, offset, number), Event("done", at + 0.5, pid, queue, offset, number)]


def started(at: float, offset: int, *, pid: int = A, queue: int = 0) -> list[Event]:
    return [Event("start", at, pid, queue, offset, offset)]


GOOD = [*handled(0, 0), *handled(1, 1), *handled(2, 2), *handled(1.7, 0, queue=1, pid=B, number=3)]
KILLED_AND_REPEATED = [*handled(0, 0), *handled(1, 1), *started(2, 2), *handled(70, 1, pid=B), *handled(71, 2, pid=B)]
KILL_OF_A = [Kill(3.0, A)]


def test_a_good_history_has_no_findings() -> None:
    assert lost([0, 1, 2, 3], GOOD) == []
    assert phantoms([0, 1, 2, 3], GOOD) == []
    assert repeated(GOOD) == {}
    assert conflicts(GOOD) == []
    assert overtaken(GOOD) == []
    assert overlapping(GOOD) == []
    assert unexplained_repeats(GOOD, []) == []
    assert keys_out_of_order(GOOD, 2) == []


def test_a_kill_explains_what_is_repeated_after_it() -> None:
    assert overtaken(KILLED_AND_REPEATED) == []
    assert overlapping(KILLED_AND_REPEATED, KILL_OF_A) == []
    assert unexplained_repeats(KILLED_AND_REPEATED, KILL_OF_A) == []
    assert repeated(KILLED_AND_REPEATED) == {1: 2}
    assert lost([0, 1, 2], KILLED_AND_REPEATED) == []


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([], id="nothing at all"),
        pytest.param(handled(0, 0), id="one of two"),
        pytest.param([*handled(0, 0), *started(1, 1)], id="started is not done"),
    ],
)
def test_what_is_never_finished_is_lost(events: list[Event]) -> None:
    assert 1 in lost([0, 1], events)


@pytest.mark.parametrize(
    ("stored", "found"),
    [([0], [1]), ([], [0, 1]), ([5], [0, 1])],
    ids=["one too many", "none was stored", "others were stored"],
)
def test_what_was_never_sent_is_a_phantom(stored: list[int], found: list[int]) -> None:
    assert phantoms(stored, [*handled(0, 0), *started(1, 1)]) == found


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(handled(5, 1), id="the same process again"),
        pytest.param(handled(5, 1, pid=B), id="another process"),
        pytest.param(handled(5, 7, number=1), id="stored twice"),
    ],
)
def test_what_was_done_twice_is_repeated(again: list[Event]) -> None:
    assert repeated([*handled(0, 0), *handled(1, 1), *again]) == {1: 2}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(handled(5, 1, number=9), id="another number at a known place"),
        pytest.param(handled(5, 1, number=9, pid=B), id="in another process"),
        pytest.param([Event("start", 5, B, 0, 1, 9)], id="only started"),
    ],
)
def test_two_messages_at_one_place_are_a_conflict(other: list[Event]) -> None:
    assert conflicts([*handled(0, 0), *handled(1, 1), *other]) == [(0, 1)]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([*handled(0, 0), *handled(0.4, 1)], id="the second starts too early"),
        pytest.param([*handled(0, 0), *handled(1, 2), *handled(2, 1)], id="two are swapped"),
        pytest.param([*started(0, 0), *handled(1, 1, pid=B)], id="the first was never done"),
        pytest.param([*handled(0, 1)], id="the first is missing"),
        pytest.param([*handled(0, 0), *handled(1, 1, queue=1)], id="done in another queue only"),
    ],
)
def test_a_message_before_its_predecessor_is_overtaking(events: list[Event]) -> None:
    assert len(overtaken(events)) == 1


@pytest.mark.parametrize(
    ("events", "kills"),
    [
        pytest.param([*handled(0, 0), *handled(0.3, 1, pid=B)], [], id="two processes at once"),
        pytest.param([*handled(0, 0), *handled(0.3, 1)], [], id="two in one process"),
        pytest.param([*started(0, 0), *handled(9, 0, pid=B)], [], id="the first still has it"),
        pytest.param([*started(0, 0), *handled(2, 0, pid=B)], KILL_OF_A, id="taken over before the kill"),
        pytest.param([*started(0, 0), *handled(9, 0, pid=B)], [Kill(3.0, 300)], id="another process was killed"),
    ],
)
def test_two_at_once_in_a_queue_overlap(events: list[Event], kills: list[Kill]) -> None:
    assert len(overlapping(events, kills)) == 1


@pytest.mark.parametrize(
    ("events", "kills"),
    [
        pytest.param([*handled(0, 0), *handled(1, 0)], [], id="without any kill"),
        pytest.param([*handled(0, 0), *handled(9, 0, pid=B)], [Kill(3.0, B)], id="the other one was killed"),
        pytest.param([*handled(0, 0), *handled(1, 0, pid=B)], KILL_OF_A, id="repeated before the kill"),
        pytest.param([*handled(0, 0), *handled(9, 0, pid=B), *handled(20, 0, pid=B)], KILL_OF_A, id="once too often"),
    ],
)
def test_a_repetition_without_a_kill_is_unexplained(events: list[Event], kills: list[Kill]) -> None:
    assert len(unexplained_repeats(events, kills)) == 1


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param((0, 1, 4, 2), id="4 before 2"),
        pytest.param((0, 1, 3, 2, 6), id="6 before 4"),
        pytest.param((1, 2, 3), id="2 before 0"),
    ],
)
def test_a_key_out_of_order_is_found(numbers: tuple[int, ...]) -> None:
    events = [event for at, number in enumerate(numbers) for event in handled(at, at, queue=number % 2, number=number)]
    assert len(keys_out_of_order(events, 2)) == 1


@pytest.mark.parametrize(
    ("events", "early", "double"),
    [
        pytest.param([*handled(0, 0), *handled(0.1, 1), *handled(2, 2), *handled(2.1, 3)], 0, 0, id="two keys at once"),
        pytest.param([*handled(0, 0), *handled(1, 4), *handled(2, 2)], 1, 0, id="one key, swapped"),
        pytest.param([*handled(0, 0), *handled(0.3, 2, pid=B)], 1, 1, id="one key, at once"),
    ],
)
def test_keys_of_a_queue_are_judged_one_by_one(events: list[Event], early: int, double: int) -> None:
    events = [event._replace(number=event.offset) for event in events]
    assert (len(overtaken(by_key(events, 2))), len(overlapping(by_key(events, 2)))) == (early, double)


def test_the_order_of_writing_does_not_matter() -> None:
    assert overtaken(list(reversed(GOOD))) == []
    assert overlapping(list(reversed(GOOD))) == []
