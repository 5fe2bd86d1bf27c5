from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.fencing import CONFIRMED_FOR, FROZEN_AFTER, Fencing

ONE, OTHER = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)


def owner(now: float = 0.0) -> Fencing:
    fencing = Fencing(now)
    fencing.confirm("T", now)
    for queue in (ONE, OTHER):
        fencing.verify(queue, fencing.era)
    return fencing


def test_a_lost_broker_puts_its_own_queues_in_doubt_and_no_others() -> None:
    fencing = owner()
    fencing.lost("a", 1.0)
    assert fencing.fenced == {ONE}
    assert not fencing.may_commit(ONE, 1.0)
    assert fencing.may_commit(OTHER, 1.0)
    fencing.confirm("T", 1.1, ["a", "b"])
    assert fencing.verify(ONE, fencing.era)
    assert fencing.may_commit(ONE, 1.1)
    assert not fencing.fenced


def test_after_a_lost_connection_an_offset_counts_that_was_read_after_a_list_that_was_asked_for_later() -> None:
    fencing = owner()
    fencing.lost("a", 0.1)
    assert not fencing.verify(ONE, fencing.era)  # nothing was asked
    assert not fencing.confirm("T", 0.1, ["a", "b"])  # asked before the connection was lost
    assert not fencing.confirm("T", 0.2, ["b"])  # asked while it was lost
    assert not fencing.verify(ONE, fencing.era)
    era = fencing.era
    assert fencing.confirm("T", 0.3, ["a", "b"])
    assert not fencing.verify(ONE, era)  # asked before the list was acted on
    assert fencing.verify(ONE, fencing.era)
    assert not fencing.confirm("T", 0.4, ["a", "b"])
    fencing.lost("a", 0.5)
    assert not fencing.verify(ONE, fencing.era)
    assert fencing.verify(OTHER, fencing.era)


def test_a_session_that_begins_before_the_list_is_in_doubt() -> None:
    fencing = owner()
    fencing.lost("a", 1.0)
    fencing.forget(ONE)
    assert not fencing.fenced
    fencing.begin(ONE)
    assert fencing.fenced == {ONE} and not fencing.may_commit(ONE, 1.0)


def test_a_process_that_stood_still_trusts_nothing_before_list_and_offset_were_read() -> None:
    fencing = owner()
    assert not fencing.beat(1.0)
    assert fencing.may_commit(ONE, 1.0 + FROZEN_AFTER - 0.1)
    assert not fencing.may_commit(ONE, 1.0 + FROZEN_AFTER)  # before the clock is looked at
    assert fencing.beat(1.0 + FROZEN_AFTER)
    thawed = 1.1 + FROZEN_AFTER
    fencing.confirm("T", thawed)
    assert not fencing.may_commit(ONE, thawed)
    fencing.verify(ONE, fencing.era)
    assert fencing.may_commit(ONE, thawed)


def test_a_list_of_members_holds_for_a_minute_and_after_that_offsets_are_read_again() -> None:
    fencing = owner()
    for second in range(1, 70):
        fencing.beat(second)
    assert fencing.is_confirmed("T", CONFIRMED_FOR - 0.1) and fencing.may_commit(ONE, CONFIRMED_FOR - 0.1)
    assert not fencing.may_commit(ONE, CONFIRMED_FOR)
    fencing.confirm("T", 69.0)
    assert not fencing.may_commit(ONE, 69.0)
    fencing.verify(ONE, fencing.era)
    assert fencing.may_commit(ONE, 69.0)


def test_an_answer_from_before_the_disturbance_proves_nothing() -> None:
    fencing = owner()
    era = fencing.era
    fencing.lost("b", 1.0)
    assert not fencing.verify(ONE, era)
    fencing.lost("a", 1.0)
    assert not fencing.verify(ONE, era)
    assert ONE in fencing.fenced


@given(st.lists(st.sampled_from(["lose a", "lose b", "beat", "freeze", "confirm", "verify"]), max_size=40))
def test_what_is_trusted_was_verified_after_every_disturbance_of_its_own(steps: list[str]) -> None:
    fencing, now = owner(), 0.0
    disturbed, listed, verified = {ONE: -1, OTHER: -1}, {ONE: 0, OTHER: 0}, {ONE: 0, OTHER: 0}
    for at, step in enumerate(steps, start=1):
        now += 6.0 if step == "freeze" else 0.5
        match step:
            case "lose a" | "lose b":
                fencing.lost(step[-1], now)
                queue = ONE if step[-1] == "a" else OTHER
                disturbed[queue], listed[queue] = at, len(steps) + 1
            case "beat" | "freeze":
                if fencing.beat(now):
                    disturbed = dict.fromkeys(disturbed, at)
            case "confirm":
                fencing.confirm("T", now, ["a", "b"])
                listed = {queue: min(since, at) for queue, since in listed.items()}
            case _:
                fencing.verify(ONE, fencing.era)
                verified[ONE] = at
        for queue in (ONE, OTHER):
            assert not fencing.may_commit(queue, now) or verified[queue] > max(disturbed[queue], listed[queue] - 1)
