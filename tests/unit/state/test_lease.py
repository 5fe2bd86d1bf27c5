from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rocketapp.state.lease import Lease

LASTS = 30.0


def lease() -> Lease:
    return Lease(lasts=LASTS, renew_interval=20.0)


def test_a_lease_that_was_never_granted_is_not_held() -> None:
    assert not lease().held(0.0)
    assert not lease().held(-1e9)


def test_trust_counts_from_when_the_request_was_sent() -> None:
    held = lease()
    held.granted(sent_at=100.0)
    assert held.held(129.9)
    assert not held.held(130.0)
    assert held.renewal() == 120.0


def test_a_lease_that_is_shorter_than_the_interval_is_renewed_as_it_ends() -> None:
    held = Lease(lasts=LASTS, renew_interval=2 * LASTS)
    held.granted(sent_at=100.0)
    assert held.renewal() == 130.0


def test_an_answer_that_comes_late_does_not_shorten_it() -> None:
    held = lease()
    held.granted(sent_at=100.0)
    held.granted(sent_at=90.0)
    assert held.certain_until == 130.0


def test_a_suspended_lease_is_not_held_until_a_later_request_is_granted() -> None:
    held = lease()
    held.granted(sent_at=100.0)
    held.suspend(105.0)
    assert not held.held(105.0)
    held.granted(sent_at=104.0)  # asked for before the connection was lost
    assert not held.held(105.0) and held.is_suspended
    held.granted(sent_at=106.0)
    assert held.held(135.9) and not held.is_suspended
    assert held.suspensions == 1


def test_a_lost_lease_is_never_held_again() -> None:
    held = lease()
    held.granted(sent_at=100.0)
    held.lose()
    held.granted(sent_at=101.0)
    held.suspend(102.0)
    assert held.is_lost
    assert not held.held(101.0)


def test_a_lease_says_how_it_stands() -> None:
    held = lease()
    held.granted(sent_at=100.0)
    assert [held.state(now) for now in (129.9, 130.0)] == ["held", "uncertain"]
    assert Lease.endless().state(1e9) == "none"


@given(st.lists(st.tuples(st.sampled_from(["ask", "answer", "suspend", "lose"]), st.floats(0.0, 20.0)), max_size=40))
def test_a_held_lease_was_asked_for_after_the_last_suspension_and_within_its_trust(
    steps: list[tuple[str, float]],
) -> None:
    held, now, asked, valid = lease(), 0.0, 0.0, -1e9
    for step, pause in steps:
        now += pause
        if step == "ask":
            asked = now
        elif step == "answer":
            held.granted(asked)
        elif step == "suspend":
            held.suspend(now)
            valid = now
        else:
            held.lose()
        if held.held(now):
            assert not held.is_lost
            assert asked >= valid and now < asked + LASTS


def test_who_waits_for_a_lease_hears_once_that_it_was_granted_or_lost() -> None:
    lease, heard = Lease(lasts=30.0, renew_interval=20.0), list[str]()
    lease.when_decided(lambda: heard.append("granted"))
    lease.suspend(5.0)
    lease.granted(4.0)  # asked for before it was uncertain
    assert heard == []
    lease.granted(6.0)
    lease.granted(26.0)
    assert heard == ["granted"]
    lease.when_decided(lambda: heard.append("lost"))
    lease.lose()
    lease.when_decided(lambda: heard.append("lost before"))
    assert heard == ["granted", "lost", "lost before"]
