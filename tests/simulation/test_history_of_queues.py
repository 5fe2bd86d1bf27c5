"""The checks of owners, repetitions and pauses find what is wrong with histories made by hand, and nothing else."""

from __future__ import annotations

import pytest

from tests.simulation import history as facts
from tests.simulation import liveness, ownership
from tests.simulation import repeats as repeated
from tests.simulation.history import (
    Assigned,
    Committed,
    Event,
    Fault,
    Finished,
    Idle,
    Released,
    Started,
    Stored,
)
from tests.simulation.told import (
    CALM,
    ORDERLY,
    QUEUE,
    A,
    B,
    ended,
    handled,
    running_long,
    started,
)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*started(1, 0), *started(2, 1, member=B)], id="two members"),
        pytest.param([*started(1, 0), *started(2, 1)], id="one member twice"),
        pytest.param([*started(1, 0), *ended(2, 0, member=B), *started(3, 1)], id="somebody else ended"),
        pytest.param([*started(1, 0), Fault(2, facts.CRASH, B), *started(3, 1)], id="somebody else crashed"),
        pytest.param([*started(1, 0), Fault(2, facts.CUT, A), *started(62, 0, member=B)], id="cut, but alive"),
    ],
)
def test_overlapping_handlers_are_found(history: list[Event]) -> None:
    assert len(ownership.overlaps(history, ORDERLY)) == 1
    assert ownership.overlaps(history, ()) == []


@pytest.mark.parametrize("fault", [facts.CRASH, facts.FREEZE])
def test_a_handler_that_cannot_go_on_overlaps_with_no_other(fault: str) -> None:
    assert ownership.overlaps([*started(1, 0), Fault(2, fault, A), *started(63, 0, member=B)], ORDERLY) == []


def handed_over_at_once() -> list[Event]:
    return [*started(1, 0, queue=CALM), Released(1.2, A, CALM), *started(1.6, 0, queue=CALM, member=B)]


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*handled(1, 0), *handled(2, 0)], id="the same member"),
        pytest.param([*handled(1, 0), *handled(2, 0, member=B)], id="another member"),
        pytest.param([*handled(1, 0), *handled(2, 0, queue="moves:1")], id="stored twice"),
        pytest.param([Fault(0, facts.CRASH, B), *handled(20, 0), *handled(21, 0)], id="long after a crash"),
        pytest.param([*handled(1, 0), Fault(2, facts.JOIN, B), *handled(3, 0, member=B)], id="somebody joined"),
        pytest.param([*handled(1, 0), Fault(2, facts.LEAVE, A), *handled(3, 0, member=B)], id="a clean leave"),
        pytest.param([*handled(1, 0), Fault(2, facts.BROKER_CRASH, "b"), *handled(3, 0)], id="another broker's crash"),
        pytest.param([*handled(1, 0), Released(2, A, QUEUE), *handled(3, 0)], id="orderly, in a new session"),
        pytest.param([*handled(1, 0, CALM), Released(2, A, CALM), *handled(3, 0, CALM)], id="in a new session"),
        pytest.param(
            [*handled(1, 0), Fault(2, facts.UNANSWERED, "moves:1"), *handled(3, 0, member=B)],
            id="another queue's commit failed",
        ),
        pytest.param([*handled(1, 0), Fault(2, facts.CRASH, "c"), *handled(3, 0, member=B)], id="a third one's crash"),
        pytest.param([*running_long(1, 0), *handled(5, 0, member=B)], id="orderly, in spite of a long call"),
        pytest.param([*running_long(1, 1, CALM), *handled(6, 0, CALM), *handled(7, 0, CALM, B)], id="a long one above"),
        pytest.param([*running_long(1, 0, CALM), *handled(8, 1, CALM), *handled(9, 1, CALM, B)], id="long, but before"),
        pytest.param([*running_long(1, 0, CALM), *started(2, 0, queue=CALM)], id="long, and the same member"),
        pytest.param([*handed_over_at_once(), *ended(1.9, 0, queue=CALM)], id="handed over as a quick call began"),
        pytest.param(
            [*handled(1, 0), Fault(2, facts.HIDE, "b"), Assigned(9, B, QUEUE), *handled(9, 0, member=B)],
            id="orderly, as the routes changed",
        ),
        pytest.param(
            [Fault(0, facts.SHOW, "b"), *handled(50, 0, CALM), Assigned(51, B, CALM), *handled(52, 0, CALM, B)],
            id="long after the routes changed",
        ),
        pytest.param(
            [Fault(0, facts.HOLD, A), Fault(1, facts.RELEASE, A), *handled(40, 0), *handled(41, 0)], id="a hold is over"
        ),
    ],
)
def test_repetitions_without_a_reason_are_found(history: list[Event]) -> None:
    assert repeated.repeats(history, ORDERLY)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*handled(1, 0), Fault(2, facts.CRASH, A), *handled(3, 0, member=B)], id="a crash"),
        pytest.param([Fault(0, facts.HOLD, A), *handled(40, 0), *handled(80, 0, member=B)], id="held all the time"),
        pytest.param([*started(1, 0), *ended(2, 0, done=False), *started(3, 0, member=B)], id="a failure, tried anew"),
        pytest.param([*handled(1, 0), Fault(2, facts.CUT), *handled(3, 0, member=B)], id="everything was cut"),
        pytest.param(
            [*handled(1, 0), Fault(2, facts.UNANSWERED, QUEUE), *handled(3, 0, member=B)], id="its commit failed"
        ),
        pytest.param(
            [*started(1, 0, queue=CALM), Released(2, A, CALM), *started(3, 0, queue=CALM, member=B)],
            id="handed over during a long call",
        ),
        pytest.param([*handed_over_at_once(), *ended(9, 0, queue=CALM)], id="handed over as a long call began"),
        pytest.param(
            [*started(1, 0, queue=CALM), Released(3, A, CALM), Assigned(4, A, CALM), *started(4, 0, queue=CALM)],
            id="got back during a long call",
        ),
        pytest.param(
            [*handled(1, 0, CALM), Fault(2, facts.HIDE, "b"), Assigned(9, B, CALM), *handled(9, 0, CALM, B)],
            id="handed over as the routes changed",
        ),
        pytest.param(
            [*started(1, 0, queue=CALM), *handled(1, 1, CALM), Released(2, A, CALM), *handled(5, 1, CALM, B)],
            id="above a long call",
        ),
    ],
)
def test_repetitions_with_a_reason_are_not(history: list[Event]) -> None:
    assert repeated.repeats(history, ORDERLY) == []


@pytest.mark.parametrize(
    ("before", "meanwhile", "count"),
    [
        pytest.param([], [], 0, id="not taken"),
        pytest.param([*handled(0, 0, CALM), Committed(1, CALM, 0)], [], 0, id="not taken when it came again"),
        pytest.param([Stored(1, CALM, 0, 7)], [], 1, id="not forwarded"),
        pytest.param([Committed(1, CALM, 1)], [], 1, id="committed"),
        pytest.param([], handled(2, 0, CALM, B), 1, id="taken"),
    ],
)
def test_what_nobody_takes_holds_up_what_lies_above_it_as_a_queue_changes_hands(
    before: list[Event], meanwhile: list[Event], count: int
) -> None:
    history = [
        Stored(0, CALM, 0, 0),
        *before,
        Assigned(2, A, CALM),
        *meanwhile,
        *handled(2, 1, CALM),
        Released(3, A, CALM),
        Assigned(4, B, CALM),
        *handled(4, 1, CALM, B),
    ]
    assert len(repeated.repeats(history, forwards=lambda owner, number: (owner, number) == (A, 0))) == count


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([Assigned(1, A, QUEUE), Assigned(2, A, QUEUE)], id="twice"),
        pytest.param([Assigned(1, A, QUEUE), Released(2, B, QUEUE), Assigned(3, A, QUEUE)], id="another one's release"),
        pytest.param([Assigned(1, A, QUEUE), Released(2, A, "moves:1"), Assigned(3, A, QUEUE)], id="another queue's"),
    ],
)
def test_two_sessions_of_a_queue_are_found(history: list[Event]) -> None:
    assert len(ownership.double_sessions(history)) == 1


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([Assigned(1, A, QUEUE), Assigned(9, B, QUEUE)], id="orderly, not given up"),
        pytest.param([Assigned(1, A, QUEUE), Released(8, A, "moves:1"), Assigned(9, B, QUEUE)], id="another given up"),
        pytest.param([Fault(0, facts.FREEZE, "c"), Assigned(1, A, QUEUE), Assigned(9, B, QUEUE)], id="a third frozen"),
        pytest.param([Assigned(1, A, CALM), Assigned(2, B, CALM), *started(6, 0, queue=CALM)], id="4 s later"),
        pytest.param(
            [Fault(0, facts.BROKER_CRASH, "b"), Assigned(1, A, CALM), Assigned(2, B, CALM), *started(6, 0, queue=CALM)],
            id="another broker's crash",
        ),
        pytest.param(
            [Assigned(1, A, CALM), Assigned(2, B, CALM), Released(3, A, CALM), *started(9, 0, queue=CALM)],
            id="given up, and started",
        ),
    ],
)
def test_a_second_owner_is_found(history: list[Event]) -> None:
    assert len(ownership.two_owners(history, ORDERLY)) == 1


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([Assigned(1, A, QUEUE), Released(2, A, QUEUE), Assigned(3, B, QUEUE)], id="given up"),
        pytest.param([Assigned(1, A, QUEUE), Fault(2, facts.CRASH, A), Assigned(99, B, QUEUE)], id="crashed"),
        pytest.param([Assigned(1, A, CALM), Assigned(2, B, CALM), *started(4, 0, queue=CALM)], id="not yet heard"),
        pytest.param(
            [Assigned(1, A, CALM), Assigned(2, B, CALM), Released(3, B, CALM), *started(9, 0, queue=CALM)],
            id="given up by the second",
        ),
        pytest.param(
            [Assigned(1, A, CALM), Assigned(2, B, CALM), Fault(3, facts.HOLD, B), *started(9, 0, queue=CALM)], id="held"
        ),
    ],
)
def test_an_owner_that_follows_another_is_not(history: list[Event]) -> None:
    assert ownership.two_owners(history, ORDERLY) == []


@pytest.mark.parametrize("fault", [facts.BROKER_STOP, facts.BROKER_CRASH])
def test_a_restart_of_a_broker_excuses_no_overlap(fault: str) -> None:
    history = [*started(1, 0), Fault(2, fault), Fault(2, facts.BROKER_START), *started(3, 0, member=B)]
    assert len(ownership.overlaps(history, ORDERLY)) == 1


def many(count: int, *, queue: str = QUEUE) -> list[Event]:
    return [event for number in range(count) for event in ended(number / 10, number, queue=queue)]


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(many(44), id="never"),
        pytest.param([Committed(0, QUEUE, 1), *many(45)], id="only the first"),
        pytest.param([*many(20), Committed(3, "moves:1", 20), *many(44)[20:]], id="another queue"),
        pytest.param([Fault(0, facts.CUT, "c"), Fault(0, facts.BROKER_STOP, "b"), *many(44)], id="others disturbed"),
    ],
)
def test_commits_of_orderly_queues_that_are_late_are_found(history: list[Event]) -> None:
    assert len(repeated.late_commits(history, ORDERLY)) == 1
    assert repeated.late_commits(history, ()) == []


def test_commits_after_every_batch_or_after_a_fault_are_not_late() -> None:
    assert repeated.late_commits([*many(30), Committed(3.1, QUEUE, 30), *many(60)[30:]], ORDERLY) == []
    assert repeated.late_commits([Fault(0, facts.CUT), *many(60)], ORDERLY) == []


ON_A, ON_B = "orders@a:0", "orders@b:0"
TWO_BROKERS: list[Event] = [
    Assigned(0, A, ON_A),
    Assigned(0, A, ON_B),
    Stored(1, ON_A, 0, 1),
    Stored(1, ON_B, 0, 2),
    *handled(1, 1, ON_A, offset=0),
    *handled(1, 2, ON_B, offset=0),
    Committed(3, ON_A, 1),
    Committed(3, ON_B, 1),
]


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([Stored(10, ON_A, 1, 3), *handled(14, 3, ON_A, offset=1), Committed(15, ON_A, 2)], id="late"),
        pytest.param([Stored(10, ON_A, 1, 3), Idle(20)], id="never"),
        pytest.param(
            [
                Fault(9, facts.BROKER_CRASH, "b"),
                Stored(10, ON_A, 1, 3),
                *handled(14, 3, ON_A, offset=1),
                Committed(15, ON_A, 2),
            ],
            id="while another broker is down",
        ),
        pytest.param(
            [Stored(10, ON_A, 1, 3), *handled(10, 3, ON_A, offset=1), Committed(24, ON_A, 2)], id="committed late"
        ),
        pytest.param(
            [Fault(5, facts.FREEZE, "b"), Stored(10, ON_A, 1, 3), *handled(10, 3, ON_A, offset=1), Idle(30)],
            id="not committed while another broker is frozen",
        ),
        pytest.param(
            [Fault(9, facts.BROKER_STOP, "a"), Fault(20, facts.BROKER_START, "a"), Stored(90, ON_A, 1, 3), Idle(99)],
            id="long after its broker was down",
        ),
        pytest.param([Fault(9, facts.CRASH, B), Stored(210, ON_A, 1, 3), Idle(220)], id="long after a crash"),
    ],
)
def test_queues_that_starve_are_found(history: list[Event]) -> None:
    assert len(liveness.starved([*TWO_BROKERS, *history])) == 1


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([], id="nothing waits"),
        pytest.param([Fault(9, facts.BROKER_CRASH, "a"), Stored(10, ON_A, 1, 3), Idle(80)], id="its broker is down"),
        pytest.param([Fault(9, facts.CUT), Stored(10, ON_A, 1, 3), Idle(60)], id="everything was cut"),
        pytest.param(
            [Stored(10, ON_A, 1, 3), *started(10, 3, queue=ON_A, offset=1), Stored(11, ON_A, 2, 4), Idle(80)],
            id="a handler runs",
        ),
        pytest.param([Released(9, A, ON_A), Stored(10, ON_A, 1, 3), Idle(80)], id="not owned"),
        pytest.param(
            [
                Stored(10, ON_A, 1, 3),
                *started(10, 3, queue=ON_A, offset=1),
                Released(11, A, ON_A),
                Assigned(12, A, ON_A),
                *started(12, 3, queue=ON_A, offset=1),
                *ended(20, 3, queue=ON_A, offset=1),
                Idle(40),
            ],
            id="the call of an earlier session ended",
        ),
        pytest.param(
            [
                Stored(10, ON_A, 1, 3),
                *handled(10, 3, ON_A, offset=1),
                Released(11, A, ON_A),
                Assigned(12, B, ON_A),
                Started(12, B, ON_A, 1, 3, 1),
                Finished(13, B, ON_A, 1, 3, 1, done=False),
                Idle(40),
            ],
            id="what one member has done fails at the next, which tries it again later",
        ),
    ],
)
def test_queues_that_wait_for_a_reason_do_not_starve(history: list[Event]) -> None:
    assert liveness.starved([*TWO_BROKERS, *history]) == []
