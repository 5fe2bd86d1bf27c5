from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.trust import CONFIRMED_FOR, STOOD_STILL, Trust, Unshared

ONE, OTHER = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)


def owner(now: float = 0.0) -> Trust:
    trust = Trust(now)
    trust.confirm("T", now)
    for queue in (ONE, OTHER):
        trust.verify(queue, trust.era)
    return trust


def test_a_lost_broker_puts_its_own_queues_in_doubt_and_no_others() -> None:
    trust = owner()
    trust.lost("a", 1.0)
    assert trust.doubted == {ONE}
    assert not trust.is_trusted(ONE, 1.0)
    assert trust.is_trusted(OTHER, 1.0)
    trust.confirm("T", 1.1, ["a", "b"])
    assert trust.verify(ONE, trust.era)
    assert trust.is_trusted(ONE, 1.1)
    assert not trust.doubted


def test_after_a_lost_connection_an_offset_counts_that_was_read_after_a_list_that_was_asked_for_later() -> None:
    trust = owner()
    trust.lost("a", 0.1)
    assert not trust.verify(ONE, trust.era)  # nothing was asked
    assert not trust.confirm("T", 0.1, ["a", "b"])  # asked before the connection was lost
    assert not trust.confirm("T", 0.2, ["b"])  # asked while it was lost
    assert not trust.verify(ONE, trust.era)
    era = trust.era
    assert trust.confirm("T", 0.3, ["a", "b"])
    assert not trust.verify(ONE, era)  # asked before the list was acted on
    assert trust.verify(ONE, trust.era)
    assert not trust.confirm("T", 0.4, ["a", "b"])
    trust.lost("a", 0.5)
    assert not trust.verify(ONE, trust.era)
    assert trust.verify(OTHER, trust.era)


def test_a_lock_that_was_granted_anew_needs_no_list() -> None:
    trust = owner()
    trust.lost("a", 1.0)
    assert trust.verify(ONE, trust.era, is_locked=True)
    assert trust.is_trusted(ONE, 1.0)


def test_a_session_that_begins_before_the_list_is_in_doubt() -> None:
    trust = owner()
    trust.lost("a", 1.0)
    trust.forget(ONE)
    assert not trust.doubted
    trust.begin(ONE, is_locked=False)
    assert trust.doubted == {ONE} and not trust.is_trusted(ONE, 1.0)


def test_a_process_that_stood_still_trusts_nothing_before_list_and_offset_were_read() -> None:
    trust = owner()
    assert not trust.beat(1.0)
    assert trust.is_trusted(ONE, 1.0 + STOOD_STILL - 0.1)
    assert not trust.is_trusted(ONE, 1.0 + STOOD_STILL)  # before the clock is looked at
    assert trust.beat(1.0 + STOOD_STILL)
    thawed = 1.1 + STOOD_STILL
    trust.confirm("T", thawed)
    assert not trust.is_trusted(ONE, thawed)
    trust.verify(ONE, trust.era)
    assert trust.is_trusted(ONE, thawed)


def test_a_list_of_members_holds_for_a_minute_and_after_that_offsets_are_read_again() -> None:
    trust = owner()
    for second in range(1, 70):
        trust.beat(second)
    assert trust.is_confirmed("T", CONFIRMED_FOR - 0.1) and trust.is_trusted(ONE, CONFIRMED_FOR - 0.1)
    assert not trust.is_trusted(ONE, CONFIRMED_FOR)
    trust.confirm("T", 69.0)
    assert not trust.is_trusted(ONE, 69.0)
    trust.verify(ONE, trust.era)
    assert trust.is_trusted(ONE, 69.0)


def test_an_answer_from_before_the_disturbance_proves_nothing() -> None:
    trust = owner()
    era = trust.era
    trust.lost("b", 1.0)
    assert not trust.verify(ONE, era)
    trust.lost("a", 1.0)
    assert not trust.verify(ONE, era)
    assert ONE in trust.doubted


@given(st.lists(st.sampled_from(["lose a", "lose b", "beat", "freeze", "confirm", "verify"]), max_size=40))
def test_what_is_trusted_was_verified_after_every_disturbance_of_its_own(steps: list[str]) -> None:
    trust, now = owner(), 0.0
    disturbed, listed, verified = {ONE: -1, OTHER: -1}, {ONE: 0, OTHER: 0}, {ONE: 0, OTHER: 0}
    for at, step in enumerate(steps, start=1):
        now += 6.0 if step == "freeze" else 0.5
        match step:
            case "lose a" | "lose b":
                trust.lost(step[-1], now)
                queue = ONE if step[-1] == "a" else OTHER
                disturbed[queue], listed[queue] = at, len(steps) + 1
            case "beat" | "freeze":
                if trust.beat(now):
                    disturbed = dict.fromkeys(disturbed, at)
            case "confirm":
                trust.confirm("T", now, ["a", "b"])
                listed = {queue: min(since, at) for queue, since in listed.items()}
            case _:
                trust.verify(ONE, trust.era)
                verified[ONE] = at
        for queue in (ONE, OTHER):
            assert not trust.is_trusted(queue, now) or verified[queue] > max(disturbed[queue], listed[queue] - 1)


def test_a_member_that_keeps_its_offsets_itself_is_never_in_doubt() -> None:
    trust = Unshared(0.0)
    trust.begin(ONE, is_locked=False)
    trust.lost(ONE.broker_name, 1.0)
    assert not trust.beat(1000.0)
    assert trust.is_trusted(ONE, 2000.0)
    assert trust.doubted == set()
