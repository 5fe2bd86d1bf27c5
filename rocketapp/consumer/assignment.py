"""One owned queue, from the moment it is acquired until it has been given back.

An assignment lives in sessions. A session reads the committed offset (under the lock, for
an orderly topic), pulls and delivers from there, and ends when the queue is released, its
lock is lost, or the broker calls its offset illegal. Then a new session begins, or nothing.
Each session has an epoch and a process queue of its own: what an earlier one still reports
changes nothing. There is never more than one session, so never more than one pull loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.group.brokers import Brokers
from rocketapp.consumer.group.hand_over import MOMENT, HandOver
from rocketapp.consumer.group.leases import Leases, Lock
from rocketapp.consumer.group.offsets import Offsets
from rocketapp.consumer.group.start_offsets import StartOffsets
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.pull.flow_control import FlowControl, QueueFlow
from rocketapp.consumer.pull.puller import PullContext, Puller
from rocketapp.consumer.watch import first_of
from rocketapp.consumer.ways.delivery import Delivery, Way
from rocketapp.errors import RocketAppError
from rocketapp.model.event import Assigned, LoopFailed, Released
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import is_retry_topic
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.pauses import Pauses
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.start_position import Correction
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message

_TRY_AGAIN = 1.0
"""Seconds until a session that could not begin is tried again."""
_LOCK_PATIENCE = 1.0
"""Seconds without its lock after which a queue is said to stand still."""


class Stop(Enum):
    """Why a session ends."""

    RELEASED = "released"
    LOCK_LOST = "its lock was lost"
    OVERTAKEN = "another member went on with it meanwhile"
    MOVED = "the broker moved its offset"


@dataclass(frozen=True, slots=True)
class AssignmentContext:
    """What all assignments of a group share."""

    group: str
    brokers: Brokers
    offsets: Offsets
    config: ConsumerConfig
    flow_control: FlowControl
    pauses: Pauses
    topics: tuple[str, ...]
    """The topics of the group, without its retry topic."""
    pull: PullContext
    starts: StartOffsets
    concurrently: Way
    orderly: Way
    orderly_topics: frozenset[str]
    leases: Leases
    hand_over: HandOver
    tasks: Tasks
    epochs: Iterator[int]
    begun: asyncio.Future[None]
    """Done when pulls may start."""


class Assignment:
    """Consumes one queue."""

    def __init__(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        context: AssignmentContext,
        *,
        handed_over: bool = False,
    ) -> None:
        """`handed_over`: a living member owned it before, and may still be finishing what it started."""
        self.queue, self.is_orderly = queue, queue.topic in context.orderly_topics
        self._subscription, self._context = subscription, context
        self._way = context.orderly if self.is_orderly else context.concurrently
        self._handed_over = handed_over and not self.is_orderly
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._cut: asyncio.Future[None] = self._loop.create_future()
        self._stopping: asyncio.Future[Stop] | None = None
        self._consuming: tuple[Puller, Delivery] | None = None
        """Of the present session, until it ends."""
        self.process_queue: ProcessQueue[Message] | None = None
        """Of the present session; None while there is none."""
        self.is_clean = True
        """Once it has been given back: whether everything that was started has been finished and committed."""

    def __repr__(self) -> str:
        return f"<Assignment {self.queue}: {self.process_queue or 'no session'}>"

    @property
    def is_ending(self) -> bool:
        """It is being given back."""
        return self._ended.done()

    def end(self, *, patience: float | None = None) -> None:
        """Give it back; what was started may finish, within `patience` seconds if given."""
        if not self._ended.done():
            self._ended.set_result(None)
        self._stop(Stop.RELEASED)
        if patience is not None:
            self._loop.call_later(patience, self.cut)

    def cut(self) -> None:
        """Wait for no handler any more."""
        if not self._cut.done():
            self._cut.set_result(None)

    def apply_pauses(self) -> None:
        """Hold what the group's pauses name, and let go on what they do not name."""
        if self._consuming is None:
            return
        puller, delivery = self._consuming
        pauses, topics = self._context.pauses, self._context.topics
        if is_retry_topic(self.queue.topic):
            # Messages of several topics come back in one queue: what is not paused goes on.
            reason = pauses.reason_of_all(topics)
            for topic in topics:
                (delivery.go_on if pauses.reason(topic) is None else delivery.hold)(topic)
        else:
            reason = pauses.reason(self.queue.topic)
            if reason is None:
                delivery.go_on()
            else:
                delivery.hold()
        if reason is None:
            puller.resume()
        else:
            puller.pause(reason)

    def in_hand(self) -> list[tuple[Handler, Message]]:
        """Every running call on this queue: its handler, and its message (of a batch, the first)."""
        context = self._context
        running = context.concurrently.in_hand() + context.orderly.in_hand()
        calls = [(handler, first_of(item)) for handler, item in running]
        return [(handler, message) for handler, message in calls if message.queue == self.queue]

    async def look_whether_overtaken(self) -> None:
        """Begin anew if somebody else has gone on where we are; raises when that is not known."""
        queue = self.process_queue
        if queue is None or self.is_orderly:
            return
        committed = await self._context.brokers.committed(self.queue, exact=True)
        is_behind = committed is not None and committed > queue.commit_offset
        if is_behind or await self._context.hand_over.is_signed(self.queue):
            # Whoever went on may not be through: wait for it as after any other hand-over.
            self._handed_over = True
            self.overtaken()

    def overtaken(self) -> None:
        """Somebody else got it while we were cut off: what we did meanwhile is not committed.

        An orderly queue is nobody else's before its lock is over, so its lease decides.
        """
        if self.process_queue is not None and not self.is_orderly:
            self._context.offsets.end(self.process_queue)
            self._stop(Stop.OVERTAKEN)
            if self.is_ending:
                # What is not committed needs no patience.
                self.cut()

    async def run(self) -> None:
        """Until it has been given back."""
        pull = self._context.pull
        await self._wait(self._context.begun)
        while not self.is_ending:
            try:
                await self._session()
            except RocketAppError as error:
                pull.stall_reasons.still(self.queue, f"its offset cannot be read: {error}", kind="offset")
                await self._wait(timeout=_TRY_AGAIN)
            except Exception as error:
                # A bug here must not end the consumption of this queue without a word.
                pull.observe(LoopFailed(f"queue {self.queue}", f"{type(error).__name__}: {error}"))
                await self._wait(timeout=_TRY_AGAIN)
        pull.stall_reasons.forget(self.queue)

    def _stop(self, why: Stop) -> None:
        if self._stopping is not None and not self._stopping.done():
            self._stopping.set_result(why)

    async def _wait(self, *others: asyncio.Future[Any], timeout: float | None = None) -> None:
        """Until one of them is done, the time is over, or the queue is to be given back."""
        await asyncio.wait([*others, self._ended], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    async def _session(self) -> None:
        context = self._context
        lock = await self._locked() if self.is_orderly else None
        at_rest = True
        try:
            if self._handed_over:
                await context.hand_over.wait(self.queue, self._ended)
                self._handed_over = False
            if self.is_ending:
                return
            offset = await context.starts.offset(self.queue)
            queue: ProcessQueue[Message] = ProcessQueue(self.queue, offset, next(context.epochs))
            flow = context.flow_control.open(context.group, queue, context.config, limits_span=self._way.limits_span)
            try:
                at_rest = await self._consume(queue, lock, flow)
            finally:
                context.offsets.end(queue)
                flow.close()
                self.process_queue = None
        finally:
            if lock is not None and at_rest:
                await context.leases.give_back(lock)
            elif lock is not None:
                context.leases.drop(lock)

    async def _locked(self) -> Lock:
        """The queue's lock; not held only if the queue is to be given back."""
        lock = self._context.leases.want(self.queue)
        while not lock.gained.done() and not self.is_ending:
            await self._wait(lock.gained, timeout=_LOCK_PATIENCE)
            if not lock.gained.done():
                self._context.pull.stall_reasons.still(self.queue, f"no lock: {lock.problem}", kind="lock")
        return lock

    async def _consume(self, queue: ProcessQueue[Message], lock: Lock | None, flow: QueueFlow) -> bool:
        """Pull and deliver until the session ends; whether no handler of it runs any more."""
        context, pull = self._context, self._context.pull
        delivery = self._way.open(queue, lock)
        context.offsets.begin(queue, queue.end_offset, None if lock is None else lock.lease)
        pull.observe(Assigned(context.group, self.queue, queue.end_offset, queue.epoch))
        self.process_queue = queue
        self._stopping = stopping = self._loop.create_future()
        puller = Puller(queue, self._subscription, delivery.deliver, flow, pull)
        self._consuming = puller, delivery
        self.apply_pauses()
        pulling = context.tasks.start(puller.run(), f"pull {self.queue}")
        try:
            # The delivery is also over when it finds its lock too old, even if a renewal comes a moment later.
            await self._wait(pulling, stopping, delivery.over, *([] if lock is None else [lock.lost]))
        except asyncio.CancelledError:
            # Not by us: the loop is being closed, and a handler must not keep it.
            delivery.discard()
            raise
        finally:
            correction = pulling.result() if pulling.done() else None
            pulling.cancel()
            self._consuming = None
        if self.is_ending:
            why = Stop.RELEASED
        elif stopping.done():
            why = stopping.result()
        else:
            why = Stop.LOCK_LOST if correction is None else Stop.MOVED
        return await self._close(queue, delivery, why, correction)

    async def _close(
        self, queue: ProcessQueue[Message], delivery: Delivery, why: Stop, correction: Correction | None
    ) -> bool:
        """End a session; whether no handler of it runs any more."""
        context = self._context
        if why is Stop.RELEASED:
            at_rest = await self._give_back(queue, delivery)
        else:
            # Before anything else: what is still finished of it must not be committed.
            context.offsets.end(queue)
            at_rest = True
            if self._way.needs_lock:
                # Two handlers of the queue must not overlap.
                delivery.end()
                at_rest = await self._drained(delivery)
            else:
                delivery.discard()
        context.pull.observe(Released(context.group, self.queue, correction.reason if correction else why.value))
        if correction is not None and not self.is_ending:
            context.pull.observe(LoopFailed(f"pull {self.queue}", correction.reason))
            await context.brokers.commit(self.queue, correction.offset)
        return at_rest

    async def _give_back(self, queue: ProcessQueue[Message], delivery: Delivery) -> bool:
        """Finish what was started, and commit it for the next owner; whether no handler runs any more."""
        offsets, hand_over = self._context.offsets, self._context.hand_over
        delivery.end()
        await offsets.commit(queue)
        at_rest, signed = await self._drained(delivery, MOMENT), False
        if not at_rest:
            if not self.is_orderly:
                signed = True
                await hand_over.set_sign(self.queue)
            at_rest = await self._drained(delivery)
        self.is_clean = await offsets.commit_finally(queue) and self.is_clean
        offsets.end(queue)
        # When it was cut, some works below a started one are left: they are somebody else's now.
        delivery.discard()
        if signed:
            await hand_over.remove_sign(self.queue)
        return at_rest

    async def _drained(self, delivery: Delivery, timeout: float | None = None) -> bool:
        """Wait for what was started; whether it has ended, be it by cancellation when the drain is cut."""
        drained = self._context.tasks.start(delivery.drained(), f"drain {self.queue}")
        await asyncio.wait([drained, self._cut], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if drained.done():
            return True
        drained.cancel()
        if not self._cut.done():
            return False
        self.is_clean = False
        return await delivery.abandon()
