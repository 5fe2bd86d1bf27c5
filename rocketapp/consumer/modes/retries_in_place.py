"""Failed messages of an orderly queue → a wait and another attempt in place, or a dead letter.

Brokers do not count these attempts. They outlive the session of their queue (`retry.attempts`), so that a
message whose handler costs the queue its lock each time ends in the dead letters as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.delivery import ModeContext
from rocketapp.consumer.retry.attempts import Failed
from rocketapp.consumer.retry.redelivery import count_retry
from rocketapp.state.handover import RUN_ON
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import UNLIMITED, Failure, retry_delay
from rocketapp.wire.record import Message

Step = Sequence[tuple[Message, Failure, float | None]]
"""What follows a failed call: seconds until each of its messages is tried again; None: it is to be a dead letter."""


class RetriesInPlace:
    """The failed messages of one session."""

    def __init__(self, process_queue: ProcessQueue[Message], ended: asyncio.Future[None], context: ModeContext) -> None:
        """`ended`: done when the session waits for no message any more."""
        self._process_queue, self._ended, self._context = process_queue, ended, context
        self.earlier: dict[int, Failed] = context.attempts.take(process_queue.message_queue, process_queue.end_offset)
        """Failed attempts of earlier sessions, by offset; of messages that were not started in this one.

        As long as there is one, its queue is walked through message by message. Not all come again: after a roll-out
        nobody may want them, and a broker may have lost them.
        """
        self.failed: dict[int, Failed] = {}
        """Failed attempts of messages that were looked at in this session, until the queue is committed beyond them."""
        context.attempts.failing[process_queue.message_queue] = self.failed
        self._told: int | None = None
        """The offset of the message whose failed attempts the next owner would read."""

    def __repr__(self) -> str:
        return f"<RetriesInPlace {self._process_queue}: {len(self.failed)} failed, {len(self.earlier)} before>"

    def step_after(self, handler: Handler, failures: Iterable[tuple[Message, Failure]]) -> Step:
        """What follows these failures, in the order of offsets. The breaker hears of them at once."""
        return [(message, failure, self._delay_after(handler, message, failure)) for message, failure in failures]

    async def take(self, handler: Handler, step: Step) -> list[Message] | None:
        """Store dead letters; after the delay, the messages to try again. None when the delivery ended before."""
        for message, failure, delay in step:
            if delay is None and not await self.store_dead_letter(handler, message, failure):
                return None
        counted = [message for message, failure, delay in step if delay is not None and not failure.parked]
        self.count_attempts(counted)
        if counted:
            queue, self._told = self._process_queue.message_queue, counted[0].offset
            self._context.attempts.tell(queue, self._told, counted[0].reconsume_times)
        if longest := max((delay for *_, delay in step if delay is not None), default=0.0):
            await asyncio.wait([self._ended], timeout=longest)
            if self._ended.done():
                return None
        return [message for message, _, delay in step if delay is not None]

    def _delay_after(self, handler: Handler, message: Message, failure: Failure) -> float | None:
        """Seconds until the message is tried again, which is counted; None: it is to become a dead letter.

        The attempt of a parked message does not count.
        """
        context, about, times = self._context, handler.subscription, message.reconsume_times
        context.stopping.failed(handler, failure)
        if failure.parked:
            return failure.after or 0.0
        suspend = context.member.config.suspend
        delay = retry_delay(failure, about.retry, reconsume_times=times, retries=about.retries, suspend=suspend)
        if delay is not None:
            count_retry(context.member, handler, message, failure, delay)
        return delay

    async def is_exhausted(self, handler: Handler, message: Message) -> bool:
        """Go on counting where earlier sessions ended; whether it has no further attempt, and is a dead letter."""
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
        """These were tried once more, and are not done."""
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
            self._context.attempts.tell(self._process_queue.message_queue, self._told + 1, 0)
            self._told = None

    def close(self) -> None:
        """The session has ended: the next one of the queue goes on counting, also what had not come or not started."""
        queue, known = self._process_queue, {**self.earlier, **self.failed}
        left = [one for at, one in known.items() if at >= queue.end_offset or queue.is_unfinished(at)]
        self._context.attempts.keep(queue.message_queue, left)

    async def store_dead_letter(self, handler: Handler, message: Message, failure: Failure) -> bool:
        """Wait until a broker has stored the dead letter, behind the end for a second; False when it has not by then.

        The next owner would handle the message again, and store a second one.
        """
        stored = self._context.redelivery.store_dead_letter(handler, self._process_queue, message, failure)
        await asyncio.wait([stored, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if not stored.done():
            await asyncio.wait([stored], timeout=RUN_ON)
        return stored.done()
