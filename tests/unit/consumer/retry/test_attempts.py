"""Failed attempts outlive the session in which they were made, also at another member."""

from __future__ import annotations

import pytest

from rocketapp.consumer.retry.attempts import MOST, SHIFT, Failed, decode, encode, place
from rocketapp.model.message_queue import MessageQueue
from tests.unit.consumer.modes.contexts import mode_context

QUEUE = MessageQueue("topic", "broker-a", 0)


async def test_the_next_session_goes_on_counting() -> None:
    attempts = mode_context([]).attempts
    attempts.keep(QUEUE, [Failed(7, 2), Failed(9, 1)])
    assert attempts.take(QUEUE, first_offset=7) == {7: Failed(7, 2), 9: Failed(9, 1)}


async def test_messages_below_the_first_offset_are_finished() -> None:
    attempts = mode_context([]).attempts
    attempts.keep(QUEUE, [Failed(7, 2), Failed(9, 1)])
    assert attempts.take(QUEUE, first_offset=8) == {9: Failed(9, 1)}


async def test_what_was_taken_is_not_there_a_second_time() -> None:
    attempts = mode_context([]).attempts
    attempts.keep(QUEUE, [Failed(7, 2)])
    attempts.take(QUEUE, first_offset=0)
    assert attempts.take(QUEUE, first_offset=0) == {}


async def test_only_the_last_session_is_remembered() -> None:
    attempts = mode_context([]).attempts
    attempts.keep(QUEUE, [Failed(7, 2)])
    attempts.keep(QUEUE, [])
    assert attempts.take(QUEUE, first_offset=0) == {}


async def test_queues_do_not_meet() -> None:
    attempts = mode_context([]).attempts
    attempts.keep(QUEUE, [Failed(7, 2)])
    assert attempts.take(QUEUE._replace(queue_id=1), first_offset=0) == {}


@pytest.mark.parametrize("failed", [Failed(0, 0), Failed(0, 1), Failed(7, MOST), Failed(2**40, 3)])
def test_what_is_read_is_what_was_written(failed: Failed) -> None:
    assert decode(encode(failed)) == failed
    assert encode(failed) < 2**63


def test_a_count_above_the_most_stays_there_and_the_number_grows_with_the_offset() -> None:
    assert decode(encode(Failed(5, MOST + 1))) == Failed(5, MOST)
    assert encode(Failed(5, MOST)) < encode(Failed(6, 0))


def test_it_is_kept_beside_the_queues_of_the_topic() -> None:
    assert place(MessageQueue("stock", "broker-a", 3)) == MessageQueue("stock", "broker-a", SHIFT + 3)
    assert place(MessageQueue("stock", "broker-a", SHIFT)) is None
