"""Queue locks of orderly consumers."""

from rocketapp.broker.locks import LockTable
from rocketapp.model.message_queue import MessageQueue

QUEUES = [MessageQueue("orders", "broker-a", queue_id) for queue_id in range(3)]


def test_a_free_queue_goes_to_whoever_asks_first() -> None:
    locks = LockTable(60)
    assert locks.lock("billing", QUEUES[:2], "one", now=0) == QUEUES[:2]
    assert locks.lock("billing", QUEUES, "two", now=1) == QUEUES[2:]
    assert locks.owner("billing", QUEUES[0], now=1) == "one"


def test_groups_do_not_compete() -> None:
    locks = LockTable(60)
    assert locks.lock("billing", QUEUES, "one", now=0) == QUEUES
    assert locks.lock("shipping", QUEUES, "two", now=0) == QUEUES


def test_a_renewed_lock_lives_on_and_a_forgotten_one_is_taken_over_after_its_expiry() -> None:
    locks = LockTable(60)
    locks.lock("billing", QUEUES[:2], "one", now=0)
    assert locks.lock("billing", QUEUES[:1], "one", now=20) == QUEUES[:1]
    assert locks.lock("billing", QUEUES[:2], "two", now=60) == []
    assert locks.lock("billing", QUEUES[:2], "two", now=60.1) == QUEUES[1:2]
    assert locks.lock("billing", QUEUES[:2], "two", now=80.1) == QUEUES[:2]


def test_only_the_owner_can_unlock() -> None:
    locks = LockTable(60)
    locks.lock("billing", QUEUES, "one", now=0)
    locks.unlock("billing", QUEUES, "two")
    assert locks.owner("billing", QUEUES[0], now=1) == "one"
    locks.unlock("billing", QUEUES[:1], "one")
    assert locks.owner("billing", QUEUES[0], now=1) is None
    assert locks.owner("billing", QUEUES[1], now=1) == "one"


def test_unlocking_what_was_never_locked_is_harmless() -> None:
    locks = LockTable(60)
    locks.unlock("billing", QUEUES, "one")
    assert not locks.holds_any("billing", now=0)


def test_a_group_consumes_in_order_as_long_as_any_lock_has_not_expired() -> None:
    locks = LockTable(60)
    locks.lock("billing", QUEUES[:1], "one", now=0)
    assert locks.holds_any("billing", now=60)
    assert not locks.holds_any("billing", now=60.1)
    assert not locks.holds_any("shipping", now=0)


def test_sweeping_forgets_expired_locks_and_nothing_else() -> None:
    locks = LockTable(60)
    locks.lock("billing", QUEUES[:1], "one", now=0)
    locks.lock("shipping", QUEUES[:1], "one", now=50)
    locks.sweep(now=70)
    assert repr(locks) == "<LockTable 1 locks of 1 groups>"
    assert locks.owner("shipping", QUEUES[0], now=70) == "one"


def test_asking_for_nothing_leaves_nothing_behind() -> None:
    locks = LockTable(60)
    assert locks.lock("billing", [], "one", now=0) == []
    assert repr(locks) == "<LockTable 0 locks of 0 groups>"
