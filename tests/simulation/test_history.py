"""The checks find what is wrong with bad histories, and nothing wrong with good ones."""

from __future__ import annotations

import pytest

from tests.simulation import checks, ownership
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
from tests.simulation.told import (
    DEAD,
    ORDERLY,
    QUEUE,
    RETRY,
    A,
    B,
    ended,
    handled,
    sent,
    started,
    stored_copy,
)

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
        pytest.param([Assigned(0, A, QUEUE), Assigned(0.5, B, QUEUE), *TWO_COMMITS], id="two owners without a fault"),
        pytest.param(
            [
                Fault(0, facts.CUT),
                Assigned(0, A, QUEUE),
                Released(0.2, A, QUEUE),
                Assigned(0.5, B, QUEUE),
                *TWO_COMMITS,
            ],
            id="given up before",
        ),
        pytest.param(
            [Fault(-9, facts.CUT), Assigned(-9, A, QUEUE), Assigned(-1.5, B, QUEUE), *TWO_COMMITS],
            id="two owners long ago",
        ),
    ],
)
def test_commits_that_go_back_are_found(history: list[Event]) -> None:
    assert len(checks.commits_back(history)) == 1


@pytest.mark.parametrize("fault", [facts.BROKER_CRASH, facts.RELEASE])
def test_commits_that_go_back_for_a_reason_are_not(fault: str) -> None:
    assert checks.commits_back([TWO_COMMITS[0], Fault(1.5, fault), TWO_COMMITS[1]]) == []


def test_two_owners_after_a_fault_may_commit_one_behind_the_other_but_not_of_an_orderly_queue() -> None:
    history = [Fault(0, facts.CUT), Assigned(0, A, QUEUE), Assigned(0.5, B, QUEUE), *TWO_COMMITS]
    assert checks.commits_back(history) == []
    assert len(checks.commits_back(history, {"moves", "orders"})) == 1


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


KEYED: list[Event] = [
    Assigned(0, A, QUEUE),
    *sent(1, 0, key="a"),
    *sent(1, 1, key="b"),
    *sent(1, 2, key="a"),
    *started(2, 0),
    *started(2, 1),
    *ended(3, 1),
    *ended(4, 0),
    *handled(5, 2),
    Committed(6, QUEUE, 3),
    *END,
]


def test_keys_of_a_keyed_queue_go_side_by_side() -> None:
    assert check(KEYED, keyed=ORDERLY, within=10.0) == []
    assert check(KEYED, orderly=ORDERLY, within=10.0) != []


@pytest.mark.parametrize(
    "bad",
    [
        pytest.param([*started(2, 0), *started(2.5, 2)], id="two of one key at once"),
        pytest.param([*handled(2, 2), *handled(3, 0)], id="the second before the first"),
    ],
)
def test_a_key_out_of_order_is_found(bad: list[Event]) -> None:
    history = [*KEYED[:7], *bad]
    assert checks.overtaking(history, (), ORDERLY) or ownership.overlaps(history, (), ORDERLY)


def test_a_keyed_queue_that_changes_hands_repeats_only_what_lies_above_an_open_message() -> None:
    first = [*KEYED[:7], *started(2, 0), *handled(3, 1), Released(40, A, QUEUE)]
    again = [Assigned(41, B, QUEUE), *handled(42, 0, member=B), *handled(43, 1, member=B)]
    assert repeated.repeats([*first, *again], ORDERLY, ORDERLY) == []
    through = [*first[:-1], *ended(2.8, 0), Released(40, A, QUEUE)]
    assert repeated.repeats([*through, *again], ORDERLY, ORDERLY) != []
