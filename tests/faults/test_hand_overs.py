"""The checks of queues that change hands complain about bad histories, and only about those."""

from __future__ import annotations

import pytest

from tests.cases import cases
from tests.faults.checker import Event
from tests.faults.hand_overs import (
    Change,
    Drop,
    Move,
    Request,
    Settled,
    cause,
    hand_overs,
    longest_pause,
    lowered,
    owned_once_after,
    owners_at,
    repeats,
    repeats_of_short_calls,
    running_when_dropped,
    settled,
    takeovers,
)

A, B = 100, 200
"""Two processes."""
NEVER = float("inf")


def handled(at: float, *offsets: int, pid: int = A, queue: int = 0, takes: float = 0.5) -> list[Event]:
    """Messages, each begun when the one before it was done."""
    return [
        event
        for place, offset in enumerate(offsets)
        for event in (
            Event("start", at + place * takes, pid, queue, offset, offset),
            Event("done", at + place * takes + takes, pid, queue, offset, offset),
        )
    ]


@pytest.mark.parametrize(
    ("events", "found"),
    [
        pytest.param(handled(0, 0, 1, 2), [], id="one member, no hand-over"),
        pytest.param([*handled(0, 0, 1), *handled(2, 2, 3, pid=B)], [(A, B, 0)], id="it goes on where the other ended"),
        pytest.param([*handled(0, 0, 1, 2), *handled(2, 1, 2, 3, pid=B)], [(A, B, 2)], id="two are repeated"),
        pytest.param([*handled(0, 0, 1, 2), *handled(2, 1, 2)], [(A, A, 2)], id="the same process begins again"),
        pytest.param([*handled(0, 0, 1), *handled(1, 1)], [(A, A, 1)], id="one message twice"),
        pytest.param(
            [*handled(0, 0, 1), *handled(2, 1, 2, pid=B), *handled(4, 1, 2, 3)],
            [(A, B, 1), (B, A, 2)],
            id="there and back",
        ),
        pytest.param([*handled(0, 0, 1), *handled(0, 0, 1, pid=B, queue=1)], [], id="two queues"),
    ],
)
def test_repeats_belong_to_the_hand_over_before_them(events: list[Event], found: list[tuple[int, int, int]]) -> None:
    assert [(one.before, one.pid, one.repeats) for one in hand_overs(events)] == found


@pytest.mark.parametrize(
    ("drop", "excused"),
    [
        (Drop(3.0, A), True),
        (Drop(3.0, B), False),
        (Drop(0.5, A), False),
        (Drop(9.0, A), False),
    ],
    ids=["it was running", "another member's connection", "before it began", "after the overlap"],
)
def test_only_a_call_that_was_running_when_the_connection_broke_is_excused(drop: Drop, excused: bool) -> None:
    assert running_when_dropped(Event("start", 1.0, A, 0, 0, 0), 5.0, [drop]) is excused


@cases(
    "change, why",
    [
        (Change(5.0, "kill", A), "its member was killed"),
        (Change(5.0, "kill", B), "a rebalance"),
        (Change(5.0, "leave", A), "its member left"),
        (Change(5.0, "leave", B), "a rebalance"),
        (Change(7.0, "broker", began=5.0), "a broker restart"),
        (Change(1.0, "broker", began=0.5), "a broker restart"),
        (Change(12.0, "broker", began=11.0), "a rebalance"),
        (Change(-9.0, "broker", began=-9.5), "a rebalance"),
        (Change(5.0, "join", B), "a rebalance"),
    ],
)
def test_a_repeat_names_its_cause(change: Change, why: str) -> None:
    (repeat,) = repeats([*handled(4.0, 7), *handled(10.0, 7, pid=B)])
    assert repeat.duration == 0.5
    assert cause(repeat, [change]) == why


def test_a_repeat_within_one_process_has_no_other_cause() -> None:
    (repeat,) = repeats([*handled(4.0, 7), *handled(10.0, 7)])
    assert cause(repeat, []) == "the same member again"


LONG = handled(0.0, 3, takes=2.0)


@pytest.mark.parametrize(
    ("events", "found"),
    [
        pytest.param([*LONG, *handled(5, 3, pid=B)], [], id="a long call"),
        pytest.param([*LONG, *handled(0.2, 4), *handled(5, 4, pid=B)], [], id="done behind a long call"),
        pytest.param([*LONG, *handled(3, 4), *handled(5, 4, pid=B)], [4], id="done when the long call was over"),
        pytest.param([*LONG, *handled(0.2, 2), *handled(5, 2, pid=B)], [2], id="in front of a long call"),
        pytest.param([*LONG, *handled(0.2, 4, queue=1), *handled(5, 4, queue=1, pid=B)], [4], id="another queue"),
        pytest.param([*handled(0, 3), *handled(5, 3, pid=B)], [3], id="a short call"),
    ],
)
def test_only_what_a_long_call_held_back_may_be_repeated(events: list[Event], found: list[int]) -> None:
    assert [repeat.first.offset for repeat in repeats_of_short_calls(events, 1.0)] == found


def test_a_takeover_lasts_until_another_member_handles_the_queue() -> None:
    events = [*handled(0, 0), *handled(0, 0, queue=1), *handled(3.5, 1), *handled(5, 1, pid=B)]
    assert takeovers(events, Change(2.0, "kill", A)) == {0: 3.0, 1: NEVER}
    assert takeovers(events, Change(2.0, "kill", A), until=4.0) == {0: NEVER, 1: NEVER}
    assert takeovers(events, Change(2.0, "kill", B)) == {}


OWNED = [Move(0, "assigned", A, 0), Move(0, "assigned", A, 1), Move(5, "released", A, 1), Move(6, "assigned", B, 1)]
BUSY = [*handled(1, 0), *handled(1, 0, queue=1), *handled(5.5, 1), *handled(7, 1, pid=B, queue=1)]
JOIN = Change(4.0, "join", B)


@pytest.mark.parametrize(
    ("moves", "events", "dead", "found"),
    [
        pytest.param(OWNED, BUSY, {}, Settled(3.0, [], []), id="all is well"),
        pytest.param(OWNED, BUSY[:-2], {}, Settled(NEVER, [], []), id="owned and not pulled"),
        pytest.param(OWNED[:-1], BUSY, {}, Settled(NEVER, [1], []), id="given up and not taken"),
        pytest.param(OWNED, BUSY, {B: 8.0}, Settled(NEVER, [1], []), id="the owner is dead"),
        pytest.param([OWNED[0], OWNED[1], OWNED[3]], BUSY, {}, Settled(3.0, [], [1]), id="owned twice"),
    ],
)
def test_a_group_has_settled_when_every_queue_moves_in_the_hands_of_its_owner(
    moves: list[Move], events: list[Event], dead: dict[int, float], found: Settled
) -> None:
    assert settled(JOIN, 10.0, (0, 1), events, moves, dead) == found


def test_what_a_dead_member_owned_belongs_to_it_no_more() -> None:
    assert owners_at(7, OWNED, {}) == {0: {A: 0}, 1: {B: 6}}
    assert owners_at(7, OWNED, {A: 6.5}) == {0: {}, 1: {B: 6}}
    assert owners_at(5.5, OWNED, {}) == {0: {A: 0}, 1: {}}


def pulled(member: str, queue: int, *times: float) -> list[Request]:
    return [Request(at, member, queue, 0) for at in times]


@pytest.mark.parametrize(
    ("pulls", "seconds"),
    [
        pytest.param([*pulled("a", 0, 4.5, 9), *pulled("b", 1, 6, 9)], 2.0, id="the last queue after two seconds"),
        pytest.param(
            [*pulled("a", 0, 4.5, 9), *pulled("a", 1, 4.2, 7), *pulled("b", 1, 6, 9)], 3.0, id="twice for a while"
        ),
        pytest.param([*pulled("a", 0, 4.5, 9), *pulled("b", 1, 6), *pulled("a", 1, 9)], 5.0, id="back again"),
        pytest.param(pulled("a", 0, 4.5, 9), NEVER, id="one queue is not pulled"),
        pytest.param([*pulled("a", 0, 4.5), *pulled("b", 1, 3, 10)], NEVER, id="only before and afterwards"),
    ],
)
def test_each_queue_is_pulled_by_one_member_some_time_after_a_change(pulls: list[Request], seconds: float) -> None:
    assert owned_once_after(JOIN, 10.0, (0, 1), pulls) == seconds


@pytest.mark.parametrize(
    ("commits", "found"),
    [
        ([Request(0, "ours", 0, 5), Request(1, "ours", 0, 5), Request(2, "ours", 0, 9)], 0),
        ([Request(0, "java", 0, 5), Request(1, "ours", 0, 4)], 1),
        ([Request(0, "ours", 0, 5), Request(1, "java", 0, 4), Request(2, "ours", 0, 4)], 0),
        ([Request(0, "ours", 0, 5), Request(1, "ours", 1, 4)], 0),
        ([Request(1, "ours", 0, 4), Request(0, "ours", 0, 5)], 1),
    ],
    ids=["forward", "ours goes back", "Java goes back", "another queue", "not sorted"],
)
def test_a_commit_of_ours_that_goes_back_is_found(commits: list[Request], found: int) -> None:
    assert len(lowered(commits, {"ours"})) == found


def test_the_longest_pause_counts_from_the_begin_and_to_the_end() -> None:
    assert longest_pause([1, 2, 4], 0, 5) == 2
    assert longest_pause([3, 4], 0, 5) == 3
    assert longest_pause([1], 0, 5) == 4
    assert longest_pause([], 0, 5) == 5
    assert longest_pause([-1, 1, 2, 9], 0, 3) == 1
