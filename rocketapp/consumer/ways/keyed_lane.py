"""One handler's share of a keyed queue: what may start, and what becomes of it.

The lane of a delivery is the completion of one endless work, which the handler's workers draw from. Before each start
and after each call the lease is compared with the clock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from rocketapp.consumer.quarantine import QueueQuarantine
from rocketapp.consumer.ways.by_offset import ByOffset
from rocketapp.consumer.ways.outcomes import text_of
from rocketapp.consumer.ways.retries_in_place import RetriesInPlace
from rocketapp.consumer.workers.work import Work, Workers
from rocketapp.model.event import Observe, OrderKeyMissing
from rocketapp.model.subscription import Subscription, key_function
from rocketapp.state.keyed import Keyed
from rocketapp.state.lease import Lease
from rocketapp.state.missing_keys import MissingKeys
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.wire.record import Message


class KeyWatches:
    """Those of one group's handlers, over all their queues and sessions."""

    def __init__(self, group: str, observe: Observe) -> None:
        self._group, self._observe = group, observe
        self._by_handler: dict[tuple[str, str], MissingKeys] = {}

    def of(self, subscription: Subscription) -> MissingKeys | None:
        """What is to see the keys of a handler's messages; None when nothing is left to find out."""
        if not isinstance(subscription.order_by, str):
            return None
        key = (subscription.topic, subscription.expression)
        found = self._by_handler.get(key)
        if found is None:
            found = self._by_handler[key] = MissingKeys(partial(self._tell, subscription, subscription.order_by))
        return None if found.is_over else found

    def _tell(self, subscription: Subscription, name: str, count: int) -> None:
        self._observe(OrderKeyMissing(self._group, subscription.handler_name, subscription.topic, name, count))


class Session(Protocol):
    """The delivery that a lane belongs to."""

    process_queue: ProcessQueue[Message]
    lease: Lease
    loop: asyncio.AbstractEventLoop
    ended: asyncio.Future[None]
    key_watches: KeyWatches
    retries: RetriesInPlace
    abandoned: bool
    """Cancellations of running calls are ours."""
    record_of: Callable[[Message], bytes] | None
    """What workers note down of each message in hand; None: nothing."""
    quarantine: QueueQuarantine | None
    """Messages that may have ended a process; None: there are none."""

    def look_soon(self) -> None:
        """Messages were finished, or may start: see to it once for all that happens in this turn of the loop."""
        ...

    def ask(self) -> None:
        """The lease is over: wait until the lock is certain again, or lost."""
        ...

    def check_drained(self) -> None:
        """A call has ended."""
        ...


class Lane:
    """The messages of one session for one handler; the completion of its endless work."""

    def __init__(self, delivery: Session, workers: Workers) -> None:
        self._delivery = delivery
        self.workers: Workers = workers
        self.keyed: Keyed[Message] = Keyed()
        handler = workers.handler
        self._handler = handler
        self._key_of: Callable[[Message], Hashable] = key_function(handler.subscription)
        self._missing: MissingKeys | None = delivery.key_watches.of(handler.subscription)
        """Sees the first keys; None once it has found out."""
        self._by_offset = ByOffset(delivery.process_queue, handler)
        self._finish = self._by_offset.done
        self._lease, self._now = delivery.lease, delivery.loop.time
        self._work = Work.endless(_Startable(self), self)
        self._work.record_of = delivery.record_of
        self._quarantine = delivery.quarantine
        self._uncertain: list[tuple[Message, object, bool]] = []
        """Calls that ended when the lease was over: what they returned or raised."""
        self._timers: dict[int, asyncio.TimerHandle] = {}

    def add(self, messages: Sequence[Message]) -> None:
        """Messages that were pulled."""
        if self._missing is not None and self._missing.is_over:
            self._missing = None
        keyed, retries = self.keyed, self._delivery.retries
        key_of = self._key_of if self._missing is None else self._watched_key_of
        quarantine = self._quarantine if self._handler.runs_here else None
        for message in messages:
            try:
                key = key_of(message)
                hash(key)
            except Exception as error:
                problem = (
                    f"order_by= failed, so that its place is not known: {type(error).__name__}: {text_of(error, '')}"
                )
                self._refuse(message, object(), Failure("OrderBy", problem))
                continue
            if retries.earlier and self._is_exhausted(message):
                reason = f"the lock of its queue was lost during the last of {message.reconsume_times} attempts"
                if self._refuse(message, key, Failure("LockLost", reason)):
                    continue
            if quarantine and message in quarantine:
                keyed.quarantined.add(message.offset)
            keyed.add(message, key)

    def _watched_key_of(self, message: Message) -> Hashable:
        key = self._key_of(message)
        if self._missing is not None:
            self._missing.saw(key)
        return key

    def see_to_quarantined(self) -> None:
        """Messages that may have ended a process start when they have their turn, or are dead letters."""
        quarantine, retries = self._quarantine, self._delivery.retries
        due, self.keyed.due = self.keyed.due, []
        for message in due:
            if quarantine is None:
                return
            if (dead := quarantine.dead_letter_of(message, self._handler)) is not None:
                quarantine.settled(message.offset)
                failure = Failure("DeadLetter", dead.reason, dead=True)
                stored = retries.send_to_dlq(self._handler, message, failure)
                stored.add_done_callback(partial(self._dead_letter_stored, message))
                continue
            retries.failed[message.offset] = message.reconsume_times
            quarantine.add(message, self._handler, partial(self._start_in_turn, message))

    def _start_in_turn(self, message: Message) -> None:
        self.keyed.quarantined.discard(message.offset)
        self.keyed.start_again(message)
        self.hand_over()

    def hand_over(self) -> None:
        """Have what may start started, once the lease is certain."""
        if not self.keyed.startable:
            return
        if self._now() < self._lease.certain_until:
            self.workers.submit(self._work)
        else:
            self._delivery.ask()

    def end(self) -> None:
        """Start nothing more, and forget what rests: the queue's next owner gets it again."""
        self.keyed.hold()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.judge_uncertain(None)

    async def cancel(self) -> None:
        """Cancel the running calls of this session."""
        queue, has = self._delivery.process_queue.message_queue, self.keyed.has
        await self.workers.cancel(lambda item: item.queue == queue and has(item))

    # What workers report, on the loop.

    def done(self, message: Message) -> None:
        """The handler returned None."""
        if self._quarantine is not None and self._quarantine.has_turn(message):
            self._quarantine.ended(message)
        if self._now() >= self._lease.certain_until:
            self._note_uncertain(message, None, False)
            return
        self._finish(message)
        retries = self._delivery.retries
        if retries.failed:
            retries.done(message)
        self.release(message)

    def done_all(self, messages: Sequence[Message]) -> None:
        """The same for several messages."""
        for message in messages:
            self.done(message)

    def judge(self, item: Any, result: object, raised: bool) -> None:
        """Decide about a returned value or an exception."""
        message: Message = item
        if self._quarantine is not None and self._quarantine.has_turn(message):
            self._quarantine.ended(message)
        is_ours = self._delivery.abandoned and isinstance(result, asyncio.CancelledError)
        if is_ours or self._delivery.process_queue.closed:
            self._leave(message)
        elif self._now() >= self._lease.certain_until:
            self._note_uncertain(message, result, raised)
        else:
            self._settle(message, result, raised)

    def judge_uncertain(self, is_usable: bool | None) -> None:
        """Decide about calls that ended uncertain: the lock was ours all the time, or was lost; None: not known."""
        uncertain, self._uncertain = self._uncertain, []
        for message, result, raised in uncertain:
            if is_usable:
                self.judge(message, result, raised)
                continue
            if is_usable is False:
                # Another member may have had the queue meanwhile. The attempt counts all the same: a handler that
                # blocks the loop for longer than its lock lives would block it for ever.
                self._delivery.retries.count_attempt(message)
            self._leave(message)

    def release(self, message: Message) -> None:
        """It is finished: the next one of its key may start."""
        self.keyed.release(message)
        delivery = self._delivery
        delivery.look_soon()
        if delivery.ended.done():
            delivery.check_drained()

    def _settle(self, message: Message, result: object, raised: bool) -> None:
        delivery, retries = self._delivery, self._delivery.retries
        failures = self._by_offset.settle(message, result, raised)
        if not failures:
            retries.done(message)
            self.release(message)
            return
        ((_, failure),) = failures
        self.keyed.rest(message)
        delay = retries.delay_after(self._handler, message, failure)
        if delay is None:
            stored = retries.send_to_dlq(self._handler, message, failure)
            stored.add_done_callback(partial(self._dead_letter_stored, message))
        elif failure.stop:
            self.keyed.start_again(message)
        elif not delivery.ended.done():
            self._timers[message.offset] = delivery.loop.call_later(delay, self._again, message)
        delivery.check_drained()

    def _again(self, message: Message) -> None:
        self._timers.pop(message.offset, None)
        self._delivery.retries.count_attempt(message)
        self.keyed.start_again(message)
        self._delivery.look_soon()

    def _note_uncertain(self, message: Message, result: object, raised: bool) -> None:
        if self._delivery.ended.done():
            self._leave(message)
        else:
            self._uncertain.append((message, result, raised))
            self._delivery.ask()

    def _leave(self, message: Message) -> None:
        """It is not acknowledged, and not started again in this session."""
        self.keyed.rest(message)
        self._delivery.check_drained()

    def _dead_letter_stored(self, message: Message, _stored: object) -> None:
        """A broker has stored it as a dead letter."""
        self._delivery.retries.done(message)
        self.release(message)

    def _is_exhausted(self, message: Message) -> bool:
        return self._delivery.retries.is_exhausted(self._handler, message)

    def _refuse(self, message: Message, key: Hashable, failure: Failure) -> bool:
        """Send it to the dead letters without a call; False when another one of its key comes first."""
        if not self.keyed.add_resting(message, key):
            return False
        stored = self._delivery.retries.send_to_dlq(self._handler, message, failure)
        stored.add_done_callback(partial(self._dead_letter_stored, message))
        return True


class _Startable(Iterator[Message]):
    """What workers draw from: messages that may start, as long as the lease is certain. Threads draw as well."""

    __slots__ = ("_delivery", "_lease", "_now", "_startable")

    def __init__(self, lane: Lane) -> None:
        self._delivery = lane._delivery
        self._lease: Lease = lane._lease
        self._now = lane._now
        self._startable: deque[Message] = lane.keyed.startable

    def __next__(self) -> Message:
        if self._now() >= self._lease.certain_until:
            if self._startable:
                self._delivery.loop.call_soon_threadsafe(self._delivery.look_soon)
            raise StopIteration
        try:
            return self._startable.popleft()
        except IndexError:
            raise StopIteration from None

    def __length_hint__(self) -> int:
        return len(self._startable) if self._now() < self._lease.certain_until else 0
