"""The checks of popped topics find what is wrong with histories made by hand, and with a consumer that has a defect."""

from __future__ import annotations

import pytest

from rocketapp.state.pop_queue import PopQueue
from tests.simulation import history as facts
from tests.simulation import pop_checks
from tests.simulation.history import Acked, Calm, Event, Fault, Finished, Hidden, Idle, Shown, Started, Stored
from tests.simulation.seeded import POP, simulate
from tests.simulation.told import CALM, DEAD, A, B, sent


def hidden(
    at: float, handle: str, why: str = facts.POPPED, *, member: str = A, attempt: int = 1, **more: str
) -> Hidden:
    return Hidden(at, member, "broker-a", handle, CALM, 0, 7, attempt, 10.0, why, **more)


def begun(at: float, *, member: str = A, attempt: int = 1) -> Started:
    return Started(at, member, CALM, 0, 7, attempt)


def over(at: float, *, member: str = A, attempt: int = 1, done: bool = True) -> Finished:
    return Finished(at, member, CALM, 0, 7, attempt, done)


def dead(at: float) -> Stored:
    return Stored(at, DEAD, 0, 7)


FAILED = [hidden(1, "h1"), begun(1), over(2, done=False)]
RETRIED = [*FAILED, hidden(2, "h2", facts.RETRY, instead="h1"), Shown(12, "h2"), hidden(12, "h3", attempt=2)]
HANDLED = [hidden(1, "h1"), begun(1), over(2), Acked(2, A, "h1")]
LATE = [
    hidden(1, "h1"),
    begun(1),
    Shown(11, "h1"),
    hidden(11, "h2", member=B, attempt=2),
    begun(11, member=B, attempt=2),
]


def findings(history: list[Event], *, refused: pop_checks.Refused = ()) -> list[str]:
    whole = [*sent(0, 7, queue=CALM, offset=0), *history, Calm(99), Idle(99)]
    return pop_checks.broken(whole, retries=2, refused=refused, within=1.0)


@pytest.mark.parametrize(
    "history",
    [
        pytest.param(HANDLED, id="handled"),
        pytest.param(
            [*RETRIED, begun(12, attempt=2), over(12, attempt=2), Acked(13, A, "h3")],
            id="handled at the second attempt",
        ),
        pytest.param(
            [hidden(1, "h1"), begun(1), hidden(6, "h2", facts.RENEWED, instead="h1"), over(14), Acked(14, A, "h2")],
            id="hidden for longer",
        ),
        pytest.param(
            [
                hidden(1, "h1"),
                hidden(2, "h2", facts.GIVEN_BACK, instead="h1"),
                Shown(2, "h2"),
                *[hidden(3, "h3", member=B), begun(3, member=B), over(4, member=B), Acked(4, B, "h3")],
            ],
            id="given back",
        ),
        pytest.param(
            [Fault(0, facts.FREEZE, A), *LATE, over(12, member=B, attempt=2), Acked(12, B, "h2"), over(20)],
            id="frozen for longer than its time",
        ),
        pytest.param(
            [
                *[Fault(0, facts.FREEZE, A), Stored(0, CALM, 1, 7)],
                *[hidden(1, "h1"), begun(1), hidden(1, "h2")._replace(offset=1), begun(1)._replace(offset=1)],
                *[over(2), Acked(2, A, "h1"), over(3)._replace(offset=1), Acked(3, A, "h2")],
            ],
            id="stored twice at once by a repeated send",
        ),
    ],
)
def test_histories_that_keep_the_contract(history: list[Event]) -> None:
    assert findings(history) == []


def test_a_message_is_dead_after_its_attempts_or_when_its_handler_says_so() -> None:
    last = [hidden(1, "h1", attempt=3), begun(1, attempt=3), over(2, attempt=3, done=False), dead(3), Acked(3, A, "h1")]
    assert findings(last) == []
    early = [*FAILED, dead(3), Acked(3, A, "h1")]
    assert findings(early, refused={(7, 1)}) == []
    assert findings(early) == ["message 7: a dead letter at 3.000 after the attempts [1]"]
    never_ended = [hidden(1, "h1", attempt=5), dead(3), Acked(3, A, "h1")]
    assert findings(never_ended) == []


@pytest.mark.parametrize(
    ("history", "found"),
    [
        pytest.param([], "is neither done nor dead", id="lost"),
        pytest.param(HANDLED[:-1], "is hidden at the end", id="never acknowledged"),
        pytest.param(
            [*FAILED, Acked(2, A, "h1")], "acknowledged by member-a at 2.000, and not handled", id="not handled"
        ),
        pytest.param(LATE, "in flight of member-a, and its time was over at 11.000", id="not hidden for longer"),
        pytest.param(
            [*HANDLED, hidden(20, "h2", member=B), begun(20, member=B), over(21, member=B), Acked(21, B, "h2")],
            "done or dead at 2.000, and again at 21.000",
            id="twice",
        ),
        pytest.param(
            [hidden(1, "h1"), begun(1), hidden(2, "h2", member=B), begun(2, member=B)], "while member-a had", id="2"
        ),
        pytest.param(
            [hidden(1, "h1"), begun(1), hidden(2, "h2", facts.GIVEN_BACK, instead="h1")],
            "though its handler was started",
            id="given back too late",
        ),
        pytest.param(
            [hidden(1, "h1"), hidden(2, "h2", facts.RETRY, instead="h1")], "which had not failed on it", id="not failed"
        ),
        pytest.param(
            [
                *[hidden(1, "h1", attempt=3), begun(1, attempt=3), over(2, attempt=3, done=False)],
                hidden(2, "h2", facts.RETRY, attempt=3, instead="h1"),
            ],
            "though it had no attempt left",
            id="one attempt too many",
        ),
        pytest.param(
            [*FAILED, hidden(2, "h2", facts.RETRY, instead="h0")], "with a void handle, which makes a copy", id="copy"
        ),
        pytest.param(
            [hidden(1, "h1"), begun(1), begun(3)], "started at 3.000 by member-a, and at 1.000", id="one hand-out"
        ),
        pytest.param([begun(1)], "which had not popped it", id="not popped"),
    ],
)
def test_what_is_wrong_is_found(history: list[Event], found: str) -> None:
    assert any(found in finding for finding in findings(history)), findings(history)


def test_a_consumer_that_acknowledges_what_it_has_failed_on_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PopQueue, "begin_change", lambda queue, message: queue.finish(message))
    assert any("and not handled" in finding for finding in simulate(0, POP).findings)


def test_a_consumer_that_hides_nothing_for_longer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PopQueue, "due", lambda queue, now: [])
    assert any("its time was over" in finding for finding in simulate(0, POP).findings)
