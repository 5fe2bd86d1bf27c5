from __future__ import annotations

from rocketapp.state.lease import Lease


def lease() -> Lease:
    return Lease(trust=30.0, renew_interval=20.0)


def test_a_lease_that_was_never_granted_is_not_held() -> None:
    assert not lease().held(0.0)
    assert not lease().held(-1e9)


def test_trust_counts_from_when_the_request_was_sent() -> None:
    held = lease()
    held.granted(sent_at=100.0)
    assert held.held(129.9)
    assert not held.held(130.0)
    assert held.renewal() == 120.0


def test_an_answer_that_comes_late_does_not_shorten_it() -> None:
    held = lease()
    held.granted(sent_at=100.0)
    held.granted(sent_at=90.0)
    assert held.trusted_until == 130.0


def test_a_lost_lease_ends_at_once_and_can_be_granted_again() -> None:
    held = lease()
    held.granted(sent_at=100.0)
    held.lost()
    assert not held.held(100.0)
    held.granted(sent_at=101.0)
    assert held.held(130.5)
