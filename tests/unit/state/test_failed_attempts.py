"""Failed attempts outlive the session in which they were made."""

from __future__ import annotations

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.failed_attempts import FailedAttempts

QUEUE = MessageQueue("topic", "broker-a", 0)


def test_the_next_session_goes_on_counting() -> None:
    attempts = FailedAttempts()
    attempts.keep(QUEUE, {7: 2, 9: 1})
    assert attempts.take(QUEUE, first_offset=7) == {7: 2, 9: 1}


def test_messages_below_the_first_offset_are_finished() -> None:
    attempts = FailedAttempts()
    attempts.keep(QUEUE, {7: 2, 9: 1})
    assert attempts.take(QUEUE, first_offset=8) == {9: 1}


def test_what_was_taken_is_not_there_a_second_time() -> None:
    attempts = FailedAttempts()
    attempts.keep(QUEUE, {7: 2})
    attempts.take(QUEUE, first_offset=0)
    assert attempts.take(QUEUE, first_offset=0) == {}


def test_only_the_last_session_is_remembered() -> None:
    attempts = FailedAttempts()
    attempts.keep(QUEUE, {7: 2})
    attempts.keep(QUEUE, {})
    assert attempts.take(QUEUE, first_offset=0) == {}


def test_queues_do_not_meet() -> None:
    attempts = FailedAttempts()
    attempts.keep(QUEUE, {7: 2})
    assert attempts.take(QUEUE._replace(queue_id=1), first_offset=0) == {}
