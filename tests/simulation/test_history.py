"""The checks find what is wrong with bad histories, and nothing wrong with good ones."""

from __future__ import annotations

import pytest

from tests.simulation import checks, excuses, liveness, ownership
from tests.simulation import history as facts
from tests.simulation import repeats as repeated
from tests.simulation.checks import check
from tests.simulation.history import (
    Assigned,
    Calm,
    Committed,
    Event,
    Fault,
    Finished,
    Idle,
    Released,
    Sent,
    Started,
    Stored,
)

A, B = "member-a", "member-b"
QUEUE, CALM, RETRY, DEAD = "moves:0", "orders:0", "%RETRY%group:0", "%DLQ%group:0"
ORDERLY = frozenset({"moves"})


def sent(at: float, number: int, *, queue: str = QUEUE, offset: int | None = None, key: str = "k") -> list[Event]:
    """A message that is stored and acknowledged; its offset is its number unless told."""
    return [Stored(at, queue, number if offset is None else offset, number), Sent(at, number, key, "ok")]


def started(at: float, number: int, *, member: str = A, queue: str = QUEUE, offset: int | None = None) -> list[Event]:
    return [Started(at, member, queue, number if offset is None else offset, number, 1)]


def ended(
    at: float, number: int, *, member: str = A, queue: str = QUEUE, offset: int | None = None, done: bool = True
) -> list[Event]:
    return [Finished(at, member, queue, number if offset is None else offset, number, 1, done)]


def handled(at: float, number: int, queue: str = QUEUE, member: str = A, offset: int | None = None) -> list[Event]:
    where = {"member": member, "queue": queue, "offset": offset}
    return started(at, number, **where) + ended(at + 0.5, number, **where)  # type: ignore[arg-type]


def running_long(at: float, number: int, queue: str = QUEUE) -> list[Event]:
    return started(at, number, queue=queue) + ended(at + 4, number, queue=queue)


def stored_copy(at: float, number: int, queue: str, offset: int = 0) -> list[Event]:
    return [Stored(at, queue, offset, number)]


END: list[Event] = [Calm(90.0), Idle(95.0)]
GOOD: list[Event] = [
    Assigned(0.0, A, QUEUE),
    *sent(1, 0),
    *sent(1, 1),
    *sent(1, 2),
    *handled(2, 0),
    Committed(3, QUEUE, 1),
    *handled(4, 1),
    *started(5, 2),
    *ended(5.5, 2, done=False),
    *stored_copy(6, 2, DEAD),
    Committed(7, QUEUE, 3),
    Released(8, A, QUEUE),
    Assigned(9, A, QUEUE),
    *END,
]
CRASHED: list[Event] = [
    *sent(1, 0),
    *sent(1, 1),
    *handled(2, 0),
    *started(3, 1),
    Fault(4, facts.CRASH, A),
    *handled(66, 0, member=B),
    *handled(67, 1, member=B),
    Committed(70, QUEUE, 2),
    *END,
]


@pytest.mark.parametrize("history", [GOOD, CRASHED], ids=["good", "crashed"])
def test_a_good_history_has_no_findings(history: list[Event]) -> None:
    assert check(history, orderly=ORDERLY, within=10.0) == []


def test_a_retry_through_the_broker_settles_the_first_place() -> None:
    history = [
        *sent(1, 0, queue="orders:0"),
        *started(2, 0, queue="orders:0"),
        *ended(3, 0, queue="orders:0", done=False),
        *stored_copy(3, 0, "SCHEDULE_TOPIC_XXXX:2"),
        Committed(4, "orders:0", 1),
        *stored_copy(13, 0, RETRY),
        Started(13, A, RETRY, 0, 0, 2),
        Finished(14, A, RETRY, 0, 0, 2, True),
        *END,
    ]
    assert check(history, orderly=ORDERLY, within=10.0) == []


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*sent(1, 0)], id="never handled"),
        pytest.param([*sent(1, 0), *started(2, 0)], id="started and not done"),
        pytest.param([*sent(1, 0), *started(2, 0), *ended(3, 0, done=False)], id="failed, and no copy"),
        pytest.param([Stored(1, QUEUE, 0, 7), Sent(1, 7, "k", "unknown")], id="unknown but stored, never handled"),
        pytest.param(
            [*sent(1, 0), *started(2, 0), *ended(3, 0, done=False), *stored_copy(4, 0, RETRY)], id="stuck in the retry"
        ),
    ],
)
def test_lost_messages_are_found(history: list[Event]) -> None:
    assert checks.lost(history)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*started(1, 9)], id="never sent"),
        pytest.param([Sent(1, 0, "k", "refused"), *started(2, 0)], id="refused"),
        pytest.param([*sent(1, 0), *handled(2, 0), *handled(3, 1, offset=1)], id="one too many"),
    ],
)
def test_phantoms_are_found(history: list[Event]) -> None:
    assert len(checks.phantoms(history)) == 1


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*sent(1, 0), *sent(2, 5, offset=0)], id="stored over another"),
        pytest.param([*sent(1, 0), *sent(2, 5, offset=2)], id="a gap"),
        pytest.param([*sent(1, 0), *started(2, 9, offset=0)], id="handled is not what was stored"),
        pytest.param([*sent(1, 0), *started(2, 1)], id="handled and never stored"),
        pytest.param([*sent(1, 0, offset=3)], id="does not begin at 0"),
    ],
)
def test_conflicting_places_are_found(history: list[Event]) -> None:
    assert checks.conflicts(history)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*sent(1, 0), Committed(2, QUEUE, 1)], id="never handled"),
        pytest.param([*sent(1, 0), *started(2, 0), Committed(3, QUEUE, 1), *ended(4, 0)], id="still running"),
        pytest.param([*sent(1, 0), *sent(1, 1), *handled(2, 1), Committed(3, QUEUE, 2)], id="a gap"),
        pytest.param(
            [*sent(1, 0), *started(2, 0), *ended(3, 0, done=False), Committed(4, QUEUE, 1)], id="failed, and no copy"
        ),
        pytest.param([*sent(1, 0), *handled(2, 0), Committed(4, QUEUE, 2)], id="beyond the end"),
    ],
)
def test_commits_that_run_ahead_are_found(history: list[Event]) -> None:
    assert len(checks.commits_ahead(history)) == 1


TWO_COMMITS: list[Event] = [Committed(1, QUEUE, 5), Committed(2, QUEUE, 3)]


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(TWO_COMMITS, id="back by two"),
        pytest.param([Committed(1, QUEUE, 5), Committed(2, QUEUE, 0)], id="back to the beginning"),
        pytest.param([Fault(-90, facts.BROKER_CRASH), *TWO_COMMITS], id="crashed long ago"),
        pytest.param([Fault(0, facts.CUT), Fault(0, facts.THAW, A), *TWO_COMMITS], id="cut and thawed"),
        pytest.param([TWO_COMMITS[0], Fault(1.5, facts.BROKER_STOP), TWO_COMMITS[1]], id="a clean stop keeps it"),
        pytest.param([TWO_COMMITS[0], Fault(9, facts.BROKER_CRASH), Committed(10, QUEUE, 3)], id="written long ago"),
        pytest.param([Fault(0, facts.RELEASE, A), Committed(5, QUEUE, 5), Committed(6, QUEUE, 3)], id="held long ago"),
    ],
)
def test_commits_that_go_back_are_found(history: list[Event]) -> None:
    assert len(checks.commits_back(history)) == 1


@pytest.mark.parametrize("fault", [facts.BROKER_CRASH, facts.RELEASE])
def test_commits_that_go_back_for_a_reason_are_not(fault: str) -> None:
    assert checks.commits_back([TWO_COMMITS[0], Fault(1.5, fault), TWO_COMMITS[1]]) == []


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
def test_a_handler_that_cannot_go_on_overlaps_with_nobody(fault: str) -> None:
    assert ownership.overlaps([*started(1, 0), Fault(2, fault, A), *started(63, 0, member=B)], ORDERLY) == []


@pytest.mark.parametrize(
    "history",
    [
        pytest.param([*sent(1, 0), *sent(1, 1), *started(2, 1)], id="the first never started"),
        pytest.param([*sent(1, 0), *sent(1, 1), *started(2, 0), *started(3, 1)], id="the first still runs"),
        pytest.param(
            [*sent(1, 0), *sent(1, 1), *started(2, 0), *ended(3, 0, done=False), *started(3, 1)], id="the first failed"
        ),
        pytest.param(
            [*sent(1, 0), *sent(1, 1), Fault(1, facts.CRASH, A), *started(2, 1, member=B)], id="in spite of a crash"
        ),
    ],
)
def test_overtaking_is_found_by_queue_and_by_key(history: list[Event]) -> None:
    findings = checks.overtaking(history, ORDERLY)
    assert [finding.split(":")[0] for finding in findings] == ["moves", "key k"]
    assert checks.overtaking(history, ()) == []


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
        pytest.param([*handled(1, 0), Fault(2, facts.CRASH, "c"), *handled(3, 0, member=B)], id="a third one's crash"),
        pytest.param([*running_long(1, 0), *handled(5, 0, member=B)], id="orderly, in spite of a long call"),
        pytest.param([*running_long(1, 1, CALM), *handled(6, 0, CALM), *handled(7, 0, CALM, B)], id="a long one above"),
        pytest.param([*running_long(1, 0, CALM), *handled(6, 1, CALM), *handled(7, 1, CALM, B)], id="long, but before"),
        pytest.param([*running_long(1, 0, CALM), *started(2, 0, queue=CALM)], id="long, and the same member"),
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
            [*started(1, 0, queue=CALM), *started(3, 0, queue=CALM, member=B)], id="handed over during a long call"
        ),
        pytest.param(
            [*started(1, 0, queue=CALM), *handled(1, 1, CALM), *handled(5, 1, CALM, B)], id="above a long call"
        ),
    ],
)
def test_repetitions_with_a_reason_are_not(history: list[Event]) -> None:
    assert repeated.repeats(history, ORDERLY) == []


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
        pytest.param([], id="never calm"),
        pytest.param([Calm(1)], id="never idle"),
        pytest.param([Calm(1), Idle(12)], id="too late"),
        pytest.param([Idle(1), Calm(2)], id="idle only before"),
        pytest.param([Calm(1), Idle(2), Calm(3), Idle(14)], id="the second time too late"),
    ],
)
def test_a_group_that_is_stuck_is_found(history: list[Event]) -> None:
    assert len(checks.stuck(history, 10.0)) == 1


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
            [Assigned(1, A, CALM), Assigned(2, B, CALM), Fault(3, facts.HOLD, B), *started(9, 0, queue=CALM)], id="held"
        ),
    ],
)
def test_an_owner_that_follows_another_is_not(history: list[Event]) -> None:
    assert ownership.two_owners(history, ORDERLY) == []


@pytest.mark.parametrize(("fault", "excused"), [(facts.BROKER_STOP, True), (facts.BROKER_CRASH, True)])
def test_restarts_of_a_broker_excuse_only_while_it_forgets_its_locks(
    fault: str, excused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = [*started(1, 0), Fault(2, fault), Fault(2, facts.BROKER_START), *started(3, 0, member=B)]
    monkeypatch.setattr(excuses, "RESTARTS_EXCUSED", excused)
    assert ownership.overlaps(history, ORDERLY) == []
    monkeypatch.setattr(excuses, "RESTARTS_EXCUSED", False)
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
            [Stored(10, ON_A, 1, 3), *handled(10, 3, ON_A, offset=1), Committed(19, ON_A, 2)], id="committed late"
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
    ],
)
def test_queues_that_wait_for_a_reason_do_not_starve(history: list[Event]) -> None:
    assert liveness.starved([*TWO_BROKERS, *history]) == []


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param(sent(50, 3), id="lost"),
        pytest.param(started(50, 99), id="phantom"),
        pytest.param([Stored(50, QUEUE, 0, 0)], id="conflict"),
        pytest.param([Committed(50, QUEUE, 9)], id="ahead"),
        pytest.param([Committed(50, QUEUE, 0)], id="back"),
        pytest.param([*started(50, 0), *started(50, 1, member=B)], id="overlap"),
        pytest.param([*sent(50, 3), *sent(50, 4), *started(50, 4)], id="overtaking"),
        pytest.param(handled(50, 0), id="repeated"),
        pytest.param([Assigned(50, A, QUEUE)], id="two sessions"),
        pytest.param([Released(20, A, QUEUE), Assigned(30, A, QUEUE), Assigned(40, B, QUEUE)], id="two owners"),
        pytest.param([*sent(20, 3), Idle(80)], id="starved"),
        pytest.param([Calm(110.0)], id="stuck"),
    ],
)
def test_nothing_that_one_check_finds_escapes_all_of_them_together(bad: list[Event]) -> None:
    assert check([*GOOD, *bad], orderly=ORDERLY, within=10.0)
