"""Failed attempts of an orderly message in the form of a committed offset, which the next owner of its queue reads.

A broker keeps one number for each queue of a group, also for queues that its topic does not have. The number of such a
queue holds the offset of a message and how often it has failed: decision 0018.
"""

from __future__ import annotations

from typing import NamedTuple

from rocketapp.model.message_queue import MessageQueue

SHIFT = 32_768
"""Added to the id of a queue; a topic has fewer queues."""
_BITS = 16
MOST = (1 << _BITS) - 1


class Failed(NamedTuple):
    """A message, and how often it has failed."""

    offset: int
    times: int


def place(queue: MessageQueue) -> MessageQueue | None:
    """The queue under whose id the number of this queue is kept; None when ids are used up."""
    if queue.queue_id >= SHIFT:
        return None
    return MessageQueue(queue.topic, queue.broker_name, queue.queue_id + SHIFT)


def encode(failed: Failed) -> int:
    """The number. It grows with the offset, so that brokers see no offset go back."""
    return failed.offset << _BITS | min(failed.times, MOST)


def decode(number: int) -> Failed:
    return Failed(number >> _BITS, number & MOST)
