"""Messages in order are tried again in place: after a failure follow a wait and another attempt, or a dead letter.

A broker counts the attempts of a message that was sent back; those of a message in order are counted by its owner. When
its session ends, for example because a handler blocked the loop until the lock was lost, the next session in this
process goes on counting. So such a message ends in the dead letters like any other.

Another member that gets an orderly queue learns them from the broker, in the form of a committed offset: a broker keeps
one number for each queue of a group, also for queues that its topic does not have. The number of such a queue holds the
offset of a message and how often it has failed (decision 0018). Nothing waits for a write. What cannot be written or
read is left out: the attempts are then counted from those that this process knows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.member import Member
from rocketapp.consumer.retry.breaker import FailurePauses
from rocketapp.consumer.retry.redelivery import Redelivery, count_retry
from rocketapp.errors import RocketAppError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import ORDERLY
from rocketapp.state.handover import RUN_ON
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import UNLIMITED, Failure, retry_delay
from rocketapp.wire.record import Message

SHIFT = 32_768
"""Added to the id of a queue; a topic has fewer queues."""
_BITS = 16
MOST = (1 << _BITS) - 1
_TIMEOUT = 1.0
"""Seconds that a broker may take: a queue that begins waits for the answer."""


class Failed(NamedTuple):
    """A message and its number of failed attempts."""

    offset: int
    times: int
    message_id: str = ""
    """Of this record alone: an empty broker gives its offset to another one. Empty if a broker told of it."""


class FailedAttempts:
    """Failed attempts of orderly messages, by queue and offset. Those of each queue's last session are kept."""

    def __init__(self, member: Member, redelivery: Redelivery, stopping: FailurePauses) -> None:
        """`redelivery` stores dead letters. `stopping` is told of every failure."""
        self.member: Member = member
        self.redelivery: Redelivery = redelivery
        self.stopping: FailurePauses = stopping
        self._shared = {topic.topic for topic in member.topics if topic.kind is ORDERLY and not topic.broadcast}
        """The topics whose attempts other members learn."""
        self._times: dict[MessageQueue, dict[int, Failed]] = {}
        self._writing: dict[MessageQueue, Failed | None] = {}
        """Queues of which something is written, and what is to be written after that."""

    def __repr__(self) -> str:
        return f"<FailedAttempts of {sum(map(len, self._times.values()))} messages, {len(self._writing)} under way>"

    def keep(self, queue: MessageQueue, unfinished: Sequence[Failed]) -> None:
        """A session has ended with these messages unfinished that have failed before."""
        if unfinished:
            self._times[queue] = {one.offset: one for one in unfinished}
        else:
            self._times.pop(queue, None)

    def take(self, queue: MessageQueue, first_offset: int) -> dict[int, Failed]:
        """The failed messages, by offset, for a session that begins at `first_offset`."""
        times = self._times.pop(queue, {})
        return {offset: failed for offset, failed in times.items() if offset >= first_offset}

    async def recall(self, queue: MessageQueue) -> None:
        """Before a session: read the attempts that the previous owner has counted."""
        at = place(queue) if queue.topic in self._shared else None
        if at is None:
            return
        with contextlib.suppress(RocketAppError):
            number = await self.member.brokers.committed(at, timeout=_TIMEOUT)
            if number:
                told = decode(number)
                if told.times:  # otherwise it is done; its queue would be called for one at a time until it comes
                    known = self._times.setdefault(queue, {})
                    known[told.offset] = max(told, known.get(told.offset, told))

    def tell(self, queue: MessageQueue, offset: int, times: int) -> None:
        """Tell the next owner how often the message has failed; 0: it is done."""
        if queue.topic not in self._shared:
            return
        if queue in self._writing:
            self._writing[queue] = Failed(offset, times)
        elif (at := place(queue)) is not None:
            self._writing[queue] = None
            self.member.tasks.start(self._write(queue, at, Failed(offset, times)), f"attempts of {queue}")

    async def _write(self, queue: MessageQueue, at: MessageQueue, failed: Failed | None) -> None:
        try:
            while failed is not None:
                with contextlib.suppress(RocketAppError):
                    await self.member.brokers.commit(at, encode(failed), timeout=_TIMEOUT)
                failed, self._writing[queue] = self._writing[queue], None
        finally:
            del self._writing[queue]


def place(queue: MessageQueue) -> MessageQueue | None:
    """The queue id under which the number of this queue is kept; None when ids are used up."""
    if queue.queue_id >= SHIFT:
        return None
    return MessageQueue(queue.topic, queue.broker_name, queue.queue_id + SHIFT)


def encode(failed: Failed) -> int:
    """The number to store. It grows with the offset, so that the stored value never goes back."""
    return failed.offset << _BITS | min(failed.times, MOST)


def decode(number: int) -> Failed:
    """The message and its failed attempts, from the number that `encode` made."""
    return Failed(number >> _BITS, number & MOST)


Step = Sequence[tuple[Message, Failure, float | None]]
"""What follows a failed call: seconds until each of its messages is tried again; None: it is to be a dead letter."""


class RetriesInPlace:
    """Failed messages of one session that are tried again in place."""

    def __init__(
        self, process_queue: ProcessQueue[Message], ended: asyncio.Future[None], attempts: FailedAttempts
    ) -> None:
        """`ended`: done when the session waits for no message any more."""
        self._process_queue, self._ended, self._attempts = process_queue, ended, attempts
        self.earlier: dict[int, Failed] = attempts.take(process_queue.message_queue, process_queue.end_offset)
        """Failed attempts of earlier sessions, by offset; of messages that were not started in this one.

        As long as there is one, its queue is walked through message by message. Not all come again: after a roll-out
        nobody may want them, and a broker may have lost them.
        """
        self.failed: dict[int, Failed] = {}
        """Failed attempts of messages that were looked at in this session, until the queue is committed beyond them."""
        self._told: int | None = None
        """The offset of the message whose failed attempts the next owner would read."""

    def __repr__(self) -> str:
        return f"<RetriesInPlace {self._process_queue}: {len(self.failed)} failed, {len(self.earlier)} before>"

    def step_after(self, handler: Handler, failures: Iterable[tuple[Message, Failure]]) -> Step:
        """What follows these failures, in offset order. The breaker is told at once."""
        return [(message, failure, self._delay_after(handler, message, failure)) for message, failure in failures]

    async def take(self, handler: Handler, step: Step) -> list[Message] | None:
        """Store dead letters, wait for the delay, and return the messages to try again.

        None after the delivery ended.
        """
        for message, failure, delay in step:
            if delay is None and not await self.store_dead_letter(handler, message, failure):
                return None
        counted = [message for message, failure, delay in step if delay is not None and not failure.parked]
        self.count_attempts(counted)
        if counted:
            queue, self._told = self._process_queue.message_queue, counted[0].offset
            self._attempts.tell(queue, self._told, counted[0].reconsume_times)
        if longest := max((delay for *_, delay in step if delay is not None), default=0.0):
            await asyncio.wait([self._ended], timeout=longest)
            if self._ended.done():
                return None
        return [message for message, _, delay in step if delay is not None]

    def _delay_after(self, handler: Handler, message: Message, failure: Failure) -> float | None:
        """Seconds until the next attempt, which is counted; None: it becomes a dead letter.

        A parked message counts no attempt.
        """
        attempts, about, times = self._attempts, handler.subscription, message.reconsume_times
        attempts.stopping.failed(handler, failure)
        if failure.parked:
            return failure.after or 0.0
        suspend = attempts.member.config.suspend
        delay = retry_delay(failure, about.retry, reconsume_times=times, retries=about.retries, suspend=suspend)
        if delay is not None:
            count_retry(attempts.member, handler, message, failure, delay)
        return delay

    async def is_exhausted(self, handler: Handler, message: Message) -> bool:
        """Add the attempts of earlier sessions; whether no further attempt is left, so that it is a dead letter."""
        earlier, retries = self.earlier.pop(message.offset, None), handler.subscription.retries
        times = earlier.times if earlier is not None and earlier.message_id in ("", message.message_id) else 0
        if times:
            message.reconsume_times = times
            self._note(message)
        if times == 0 or retries == UNLIMITED or times <= retries:
            return False
        reason = f"the lock of its queue was lost during the last of {times} attempts"
        await self.store_dead_letter(handler, message, Failure("LockLost", reason))
        return True

    def count_attempts(self, messages: Iterable[Message]) -> None:
        """Count one more attempt for these messages, which are not done."""
        for message in messages:
            message.reconsume_times += 1
            self._note(message)

    def _note(self, message: Message) -> None:
        self.failed[message.offset] = Failed(message.offset, message.reconsume_times, message.message_id)

    def done_below(self, offset: int) -> None:
        """Every message below this offset is done: the queue is committed up to it."""
        for known in (self.failed, self.earlier):
            for at in [at for at in known if at < offset]:
                del known[at]
        if self._told is not None and self._told < offset:
            self._attempts.tell(self._process_queue.message_queue, self._told + 1, 0)
            self._told = None

    def close(self) -> None:
        """The session has ended: keep the counts for the next one, also those of messages not started."""
        queue, known = self._process_queue, {**self.earlier, **self.failed}
        left = [one for at, one in known.items() if at >= queue.end_offset or queue.is_unfinished(at)]
        self._attempts.keep(queue.message_queue, left)

    async def store_dead_letter(self, handler: Handler, message: Message, failure: Failure) -> bool:
        """Wait until a broker has stored the dead letter; during the drain for one second at most. False if it has not.

        The next owner would handle the message again, and store a second one.
        """
        stored = self._attempts.redelivery.store_dead_letter(handler, self._process_queue, message, failure)
        await asyncio.wait([stored, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if not stored.done():
            await asyncio.wait([stored], timeout=RUN_ON)
        return stored.done()
