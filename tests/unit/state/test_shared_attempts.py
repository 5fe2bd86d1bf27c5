"""The number in which a member leaves the attempts of a message for the next owner of its queue."""

from __future__ import annotations

import pytest

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.shared_attempts import MOST, SHIFT, Failed, decode, encode, place


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
