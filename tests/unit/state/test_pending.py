"""A waiter is taken out exactly once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.state.pending import Pending, PendingRequest


def test_an_answer_finds_its_request_once() -> None:
    pending: Pending[str] = Pending()
    pending.add(7, PendingRequest("seven", 0.0, 3.0))
    answered = pending.answered(7)
    assert answered is not None
    assert (answered.waiter, answered.started, answered.deadline) == ("seven", 0.0, 3.0)
    assert pending.answered(7) is None
    assert not len(pending)


def test_the_overdue_are_taken_and_the_others_stay() -> None:
    pending: Pending[str] = Pending()
    pending.add(1, PendingRequest("soon", 0.0, 1.0))
    pending.add(2, PendingRequest("later", 0.0, 30.0))
    assert pending.next_deadline() == 1.0
    assert pending.overdue(0.999) == []
    assert [waiting.waiter for waiting in pending.overdue(1.0)] == ["soon"]
    assert pending.answered(1) is None
    assert pending.next_deadline() == 30.0
    assert [waiting.waiter for waiting in pending.drain()] == ["later"]
    assert pending.next_deadline() is None


@given(st.lists(st.tuples(st.sampled_from(["add", "answer", "sweep", "drain"]), st.integers(0, 9), st.integers(1, 9))))
def test_every_request_ends_exactly_once(steps: list[tuple[str, int, int]]) -> None:
    pending: Pending[int] = Pending()
    added, ended, now = 0, [], 0.0
    for what, opaque, seconds in steps:
        now += 1.0
        if what == "add" and opaque not in pending:
            pending.add(opaque, PendingRequest(added, now, now + seconds))
            added += 1
        elif what == "answer":
            waiting = pending.answered(opaque)
            ended += [waiting.waiter] if waiting else []
        elif what == "sweep":
            late = pending.overdue(now)
            assert all(each.deadline <= now for each in late)
            ended += [each.waiter for each in late]
            assert (pending.next_deadline() or now + 1) > now
        elif what == "drain":
            ended += [each.waiter for each in pending.drain()]
    ended += [each.waiter for each in pending.drain()]
    assert sorted(ended) == list(range(added))
