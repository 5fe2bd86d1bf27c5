from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.trust import CONFIRMED_FOR, STOOD_STILL, Trust, went_on

ONE, OTHER = MessageQueue("T", "a", 0), MessageQueue("T", "b", 0)


def owner(now: float = 0.0) -> Trust:
    trust = Trust(now)
    trust.confirm("T", now)
    for queue in (ONE, OTHER):
        trust.verify(queue, trust.era)
    return trust


def test_a_lost_broker_puts_its_own_queues_in_doubt_and_no_others() -> None:
    trust = owner()
    trust.lost("a")
    assert not trust.is_trusted(ONE, 1.0)
    assert trust.is_trusted(OTHER, 1.0)
    assert trust.verify(ONE, trust.era)
    assert trust.is_trusted(ONE, 1.0)


def test_a_process_that_stood_still_trusts_nothing_before_list_and_offset_were_read() -> None:
    trust = owner()
    assert not trust.beat(1.0)
    assert trust.is_trusted(ONE, 1.0 + STOOD_STILL - 0.1)
    assert not trust.is_trusted(ONE, 1.0 + STOOD_STILL)  # before the clock is looked at
    assert trust.beat(1.0 + STOOD_STILL)
    trust.confirm("T", 6.1)
    assert not trust.is_trusted(ONE, 6.1)
    trust.verify(ONE, trust.era)
    assert trust.is_trusted(ONE, 6.1)


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
    trust.lost("a")
    assert not trust.verify(ONE, era)
    assert not trust.is_verified(ONE)


def test_another_member_went_on_when_the_broker_holds_more_than_we_sent() -> None:
    assert went_on(11, 10)
    assert not went_on(10, 10)
    assert not went_on(9, 10)  # the broker forgot
    assert not went_on(None, 10)


@given(st.lists(st.sampled_from(["lose a", "lose b", "beat", "freeze", "confirm", "verify"]), max_size=40))
def test_what_is_trusted_was_verified_after_every_disturbance_of_its_own(steps: list[str]) -> None:
    trust, now = owner(), 0.0
    disturbed, verified = {ONE: -1, OTHER: -1}, {ONE: 0, OTHER: 0}
    for at, step in enumerate(steps, start=1):
        now += 6.0 if step == "freeze" else 0.5
        match step:
            case "lose a" | "lose b":
                trust.lost(step[-1])
                disturbed[ONE if step[-1] == "a" else OTHER] = at
            case "beat" | "freeze":
                if trust.beat(now):
                    disturbed = dict.fromkeys(disturbed, at)
            case "confirm":
                trust.confirm("T", now)
            case _:
                trust.verify(ONE, trust.era)
                verified[ONE] = at
        for queue in (ONE, OTHER):
            assert not trust.is_trusted(queue, now) or verified[queue] > disturbed[queue]
