"""Failed attempts of messages that are tried again in place, for the next session of their queue.

A broker counts the attempts of a message that was sent back; those of a message in order are counted by its owner. When
its session ends, for example because a handler blocked the loop until the lock was lost, the next session in this
process goes on counting. So such a message ends in the dead letters like any other.

Another member that gets an orderly queue learns them from the broker, in the form of a committed offset: a broker keeps
one number for each queue of a group, also for queues that its topic does not have. The number of such a queue holds the
offset of a message and how often it has failed (decision 0018). Nothing waits for a write. What cannot be written or
read is left out: the attempts are then counted from those that this process knows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import NamedTuple

from rocketapp.consumer.member import Member
from rocketapp.errors import RocketAppError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import ORDERLY

SHIFT = 32_768
"""Added to the id of a queue; a topic has fewer queues."""
_BITS = 16
MOST = (1 << _BITS) - 1
_TIMEOUT = 1.0
"""Seconds that a broker may take: a queue that begins waits for the answer."""


class Failed(NamedTuple):
    """A message, and how often it has failed."""

    offset: int
    times: int
    message_id: str = ""
    """Of this record alone: an empty broker gives its offset to another one. Empty if a broker told of it."""


class FailedAttempts:
    """Failed attempts of one group by queue and offset. Of each queue the last session is remembered."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._shared = {topic.topic for topic in member.topics if topic.kind is ORDERLY and not topic.broadcast}
        """The topics whose attempts other members learn."""
        self._times: dict[MessageQueue, dict[int, Failed]] = {}
        self.failing: dict[MessageQueue, dict[int, Failed]] = {}
        """By queue, and by offset, what has failed in its present session, which keeps that."""
        self._writing: dict[MessageQueue, Failed | None] = {}
        """Queues of which something is written, and what is to be written after that."""

    def __repr__(self) -> str:
        return f"<FailedAttempts of {sum(map(len, self._times.values()))} messages, {len(self._writing)} under way>"

    def keep(self, queue: MessageQueue, unfinished: Sequence[Failed]) -> None:
        """A session has ended, and these messages of it have failed before."""
        self.failing.pop(queue, None)
        if unfinished:
            self._times[queue] = {one.offset: one for one in unfinished}
        else:
            self._times.pop(queue, None)

    def take(self, queue: MessageQueue, first_offset: int) -> dict[int, Failed]:
        """A session begins: the same by offset, for the messages from `first_offset` on; earlier ones are finished."""
        times = self._times.pop(queue, {})
        return {offset: failed for offset, failed in times.items() if offset >= first_offset}

    async def recall(self, queue: MessageQueue) -> None:
        """Before a session begins: learn what the owner before has counted."""
        at = place(queue) if queue.topic in self._shared else None
        if at is None:
            return
        with contextlib.suppress(RocketAppError):
            number = await self._member.brokers.committed(at, timeout=_TIMEOUT)
            if number:
                told = decode(number)
                if told.times:  # otherwise it is done; its queue would be called for one at a time until it comes
                    known = self._times.setdefault(queue, {})
                    known[told.offset] = max(told, known.get(told.offset, told))

    def tell(self, queue: MessageQueue, offset: int, times: int) -> None:
        """For the next owner: the message has failed this often; 0: it is done."""
        if queue.topic not in self._shared:
            return
        if queue in self._writing:
            self._writing[queue] = Failed(offset, times)
        elif (at := place(queue)) is not None:
            self._writing[queue] = None
            self._member.tasks.start(self._write(queue, at, Failed(offset, times)), f"attempts of {queue}")

    async def _write(self, queue: MessageQueue, at: MessageQueue, failed: Failed | None) -> None:
        try:
            while failed is not None:
                with contextlib.suppress(RocketAppError):
                    await self._member.brokers.commit(at, encode(failed), timeout=_TIMEOUT)
                failed, self._writing[queue] = self._writing[queue], None
        finally:
            del self._writing[queue]


def place(queue: MessageQueue) -> MessageQueue | None:
    """The queue under whose id the number of this queue is kept; None when ids are used up."""
    if queue.queue_id >= SHIFT:
        return None
    return MessageQueue(queue.topic, queue.broker_name, queue.queue_id + SHIFT)


def encode(failed: Failed) -> int:
    """The number. It grows with the offset, so that brokers see no offset go back."""
    return failed.offset << _BITS | min(failed.times, MOST)


def decode(number: int) -> Failed:
    """The message and its failed attempts, from the number that `encode` made."""
    return Failed(number >> _BITS, number & MOST)
