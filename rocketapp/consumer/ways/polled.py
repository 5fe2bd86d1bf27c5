"""The polled way: a handler is called for each queue at its times, and pulls as many messages as it wants.

Each session has one runner, so two calls of a queue never overlap; under the lock of the queue this holds across the
group. What a call has pulled is done when it returns. When it fails, nothing of it is done: the messages stay in
their process queue, and the next call gets them again.

Pulls go on until a queue holds what its handler took the last time, and beyond that while a call asks for more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.pull.flow_control import QueueFlow
from rocketapp.consumer.pull.puller import Deliver, PullContext
from rocketapp.consumer.retry.counts import count_retry
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import Filling, QueueLock, lock_for
from rocketapp.consumer.ways.free_call import CALL_PATIENCE, take_call
from rocketapp.consumer.ways.outcomes import failure_of
from rocketapp.consumer.ways.pulled import Pulled
from rocketapp.consumer.workers.serial import Permit, SerialExecutor, SerialInThreads, SerialOnLoop, Stopped
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import Outcome
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.flow_control import FLOW_PATIENCE, REOPEN, QueueLimits
from rocketapp.state.pauses import Take
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import Tasks
from rocketapp.user_line import file_of, log_traceback
from rocketapp.wire.record import Message

_USUAL = 32
"""Messages that a queue holds for its first call."""
_ANSWER_TIME = 1.0
"""Seconds that a call waits for more messages: a broker that has some answers within this time."""


class PolledWay(Pulled):
    """Calls the polled handlers of one group."""

    run_on: float | None = None

    def __init__(self, topics: Iterable[ConsumedTopic], context: WayContext) -> None:
        """`topics`: each has one handler."""
        self.context: WayContext = context
        self.needs_lock: bool = context.locked
        self.tasks: Tasks = Tasks(context.observe)
        self.executors: dict[str, SerialExecutor] = {topic.topic: self._executor(topic.handlers[0]) for topic in topics}
        self.deliveries: dict[ProcessQueue[Message], PolledDelivery] = {}
        """Those whose runner has not ended."""

    def _executor(self, handler: Handler) -> SerialExecutor:
        is_async = handler.subscription.is_async
        return SerialOnLoop(handler) if is_async else SerialInThreads(handler, self.context.threads)

    def open(self, process_queue: ProcessQueue[Message], lock: QueueLock | None) -> PolledDelivery:
        """The delivery of a new session under this lock."""
        lock = lock_for(process_queue, lock, needs_lock=self.needs_lock)
        self.deliveries[process_queue] = delivery = PolledDelivery(process_queue, lock, self)
        return delivery

    def new_puller(
        self,
        process_queue: ProcessQueue[Any],
        subscription: SubscriptionData,
        deliver: Deliver,
        flow: QueueFlow,
        context: PullContext,
    ) -> Filling:
        if (delivery := self.deliveries.get(process_queue)) is not None:
            delivery.pulls_through(flow)
        return super().new_puller(process_queue, subscription, deliver, flow, context)

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """Before the first call. No span: calls of a queue follow one another."""
        return QueueLimits(_USUAL, config.queue_max_bytes, None)

    def in_hand(self) -> list[tuple[Handler, Any]]:
        """Every running call that has pulled something: its handler, and the messages."""
        return [hand for delivery in self.deliveries.values() if (hand := delivery.in_hand()) is not None]

    def pace(self, handler: Handler, concurrency: int, rate: float | None) -> None:
        """Run this many calls of a handler at once; a polled handler has no rate."""
        for executor in self.executors.values():
            if executor.handler is handler:
                executor.resize(concurrency)

    async def stop(self) -> None:
        """Cancel what can be cancelled."""
        for delivery in list(self.deliveries.values()):
            delivery.abandon_soon()
        await self.tasks.close()
        for executor in self.executors.values():
            executor.stop()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        for delivery in self.deliveries.values():
            delivery.abandon_soon()
        for executor in self.executors.values():
            executor.halt()


class Round(list[Message]):
    """One call for one queue: the messages that it has pulled so far."""

    def __init__(self, delivery: PolledDelivery) -> None:
        super().__init__()
        self._delivery: PolledDelivery | None = delivery
        self.queue: MessageQueue = delivery.queue
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.is_done: bool = False
        """What it has pulled was acknowledged."""
        self.next_after: float | None = None
        """Seconds from the end of this call to the next one; None: as declared."""

    async def take(self, most: int) -> list[Message]:
        """At most this number of messages. Raises RuntimeError when the call has ended."""
        if self._delivery is None:
            raise RuntimeError(f"this call for {self.queue} has ended: pull while the handler runs")
        return await self._delivery.take(self, most)

    def end(self) -> None:
        """The call has ended."""
        self._delivery = None


class PolledDelivery:
    """The messages of one session, which wait for the next call (consumer.ways.delivery.Delivery)."""

    def __init__(self, process_queue: ProcessQueue[Message], lock: QueueLock, way: PolledWay) -> None:
        self._process_queue, self._lock, self._way = process_queue, lock, way
        self.queue: MessageQueue = process_queue.message_queue
        self._executor = way.executors[self.queue.topic]
        self._handler = self._executor.handler
        self._table = TagTable([(self._handler, self._handler.subscription.tags)])
        self._loop = asyncio.get_running_loop()
        self._permit = Permit(lock.lease)
        self._kept: deque[Message] = deque()
        """Messages that no call has, in offset order."""
        self._flow: QueueFlow | None = None
        self._usual = _USUAL
        """Messages that are held for the next call."""
        self._changed = asyncio.Event()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._held = False
        self._take: Take | None = None
        """Asked during a hold whether one call may start all the same."""
        self._next_at = self._loop.time()
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing more may start: the lock is lost, or after `end`. With an exception when it has failed."""
        self._runner = way.tasks.start(self._run(), f"poll {self.queue}")
        self._runner.add_done_callback(self._close)

    def __repr__(self) -> str:
        return f"<PolledDelivery {self._process_queue}>"

    def pulls_through(self, flow: QueueFlow) -> None:
        """What its queue may hold is decided here."""
        self._flow = flow
        self._hold_at_most(self._usual)

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        for handler, share in self._table.runs(messages):
            if handler is not None:
                self._kept.extend(share)
            else:
                # Brokers compare hashes of tags alone.
                self._process_queue.finish_all(share)
                self._way.context.stats.count_unmatched(self.queue.topic, len(share))
        self._changed.set()

    async def take(self, one: Round, most: int) -> list[Message]:
        """Give the call messages: what there is, or what comes within a moment."""
        started, limit = self._loop.time(), len(one) + len(self._kept)
        was_full = limit >= REOPEN * self._usual
        if len(self._kept) < most:
            # Twice as much: a queue that has stopped goes on when it holds less than its limit.
            self._hold_at_most(2 * (limit + most))
        while len(self._kept) < most and self._may_give() and not self._is_at_end(None if not was_full else started):
            self._changed.clear()
            try:
                async with asyncio.timeout_at(started + _ANSWER_TIME):
                    await self._changed.wait()
            except TimeoutError:
                break
        if not self._may_give():
            return []
        found = [self._kept.popleft() for _ in range(min(most, len(self._kept)))]
        one.extend(found)
        if found:
            # From now on the watch sees the call by its messages.
            self._way.context.waits.moving(self.queue)
        return found

    def _may_give(self) -> bool:
        """Nothing more begins when the queue is given up, or its topic is paused."""
        return not self._ended.done() and not self._process_queue.closed and not (self._held and self._take is None)

    def _is_at_end(self, since: float | None) -> bool:
        """Whether the broker had nothing more in its last answer; `since`: only an answer after that counts."""
        queue = self._process_queue
        if queue.broker_end is None or (since is not None and queue.answered_at <= since):
            return False
        return queue.end_offset >= queue.broker_end

    def _hold_at_most(self, messages: int) -> None:
        if self._flow is not None and not self._process_queue.closed:
            every = self._handler.subscription.every or 0.0
            told = f"which wait for the next call of {self._handler.name}, every {every:g} s"
            self._flow.hold_at_most(messages, told, patience=every + FLOW_PATIENCE)

    def hold(self, topic: str | None = None) -> None:
        """Start no further call, and give the running one no more messages."""
        self._held, self._take = True, None
        self._changed.set()

    def try_one(self, take: Take, topic: str | None = None) -> None:
        """During a hold: start one call, at its time."""
        self._take = take
        self._changed.set()

    def go_on(self, topic: str | None = None) -> None:
        """End the hold."""
        self._held, self._take = False, None
        self._changed.set()

    def end(self) -> None:
        """Start nothing more; the running call goes on with what it has pulled."""
        self._permit.withheld = True
        if not self._ended.done():
            self._ended.set_result(None)
        self._changed.set()

    async def drained(self) -> None:
        """Returns when the running call has ended. Call `end` first."""
        await asyncio.wait([self._runner])

    def discard(self) -> None:
        """The session is void: acknowledge nothing of it any more."""
        self._process_queue.close()
        self.abandon_soon()

    async def abandon(self) -> bool:
        """Cancel the running call; whether it has ended. A thread goes on, and so may a handler."""
        self.abandon_soon()
        running = f"handler {self._handler.name}" if self._permit.item is not None else None
        if running is not None and not self._permit.item:
            # The line about a cut drain tells of calls by their messages.
            self._way.context.observe(LoopFailed(f"poll {self.queue}", f"{running} is cut: it has pulled nothing"))
        await self._way.tasks.end([self._runner], running)
        return self._permit.item is None

    def abandon_soon(self) -> None:
        """Start nothing more; a cancellation of the running call is ours from now on."""
        self._permit.abandoned = True
        self.end()

    def in_hand(self) -> tuple[Handler, Any] | None:
        """The running call, once it has pulled something: its handler, and the messages."""
        item = self._permit.item
        return (self._handler, item) if item else None

    def _close(self, runner: asyncio.Task[None]) -> None:
        self._way.deliveries.pop(self._process_queue, None)
        error = None if runner.cancelled() else runner.exception()
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)
            self.over.exception()  # reported already, by the owner of the runner

    # The calls.

    async def _run(self) -> None:
        every = self._handler.subscription.every
        assert every is not None, "a polled handler has its interval"
        while await self._is_time():
            if not await take_call(self._executor, self.queue, self._ended, self._way.context.waits):
                return
            started, one = self._loop.time(), Round(self)
            self._way.context.waits.still(self.queue, partial(self._standing, started), patience=CALL_PATIENCE)
            try:
                stopped = await self._executor.run(iter((one,)), self._permit, self)
            finally:
                self._executor.free_calls.release()
                self._way.context.waits.moving(self.queue)
                one.end()
            if stopped is not None and stopped.item is None and not one.is_done:
                continue  # it was not called
            if stopped is not None and stopped.item is not None and not await self._settle(one, stopped):
                return
            self._usual = max(_USUAL, len(one))
            self._hold_at_most(max(self._usual, len(self._process_queue)))
            self._next_at = started + every if one.next_after is None else self._loop.time() + one.next_after
            # A handler that never suspends must not keep the loop for itself.
            await asyncio.sleep(0)

    def _standing(self, started: float) -> str:
        return f"{self._handler.name} has been running for {self._loop.time() - started:.0f} s and has pulled nothing"

    async def _is_time(self) -> bool:
        """Wait for the next call; False when there will be none."""
        while not self._ended.done():
            self._changed.clear()
            now = self._loop.time()
            if now < self._next_at:
                await asyncio.wait([self._ended], timeout=self._next_at - now)
            elif self._held and not (self._take is not None and self._take(self._handler.name)):
                await self._changed.wait()
            elif now < self._permit.lease.trusted_until:
                self._permit.withheld = self._ended.done()
                return not self._ended.done()
            elif not await self._is_usable():
                return False
        return False

    async def _is_usable(self) -> bool:
        """Wait until the lock is certain: True; or is lost, or the delivery ended before: False."""
        asking = self._way.tasks.start(self._lock.usable(), f"lock {self.queue}")
        await asyncio.wait([asking, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return bool(asking.result())
        asking.cancel()
        return False

    def done(self, one: Any) -> None:
        """A call has returned: its Round is done (workers.work.Acknowledge)."""
        one.is_done = True
        self._handler.stats.handled += len(one)
        self._process_queue.finish_all(one)
        self._way.context.prompt(self._process_queue)

    def done_all(self, messages: Sequence[Any]) -> None:
        """The same for a call in a thread."""
        for one in messages:
            self.done(one)

    async def _settle(self, one: Round, stopped: Stopped) -> bool:
        """Judge a call that returned something, failed, or ended beside its lock; False when the session is over."""
        if self._process_queue.closed:
            return False
        if self._loop.time() >= self._permit.lease.trusted_until and not await self._is_usable():
            return False
        result, about = stopped.result, self._handler.subscription
        failure = failure_of(result, stopped.raised, file_of(about))
        if failure is None:
            self.done(one)
        else:
            if isinstance(result, BaseException) and not isinstance(result, Outcome):
                log_traceback(result, about)
            self._failed(one, failure)
        return True

    def _failed(self, one: Round, failure: Failure) -> None:
        """Nothing is done: the next call gets the same messages."""
        context, handler = self._way.context, self._handler
        self._kept.extendleft(reversed(one))
        if failure.after is not None and one.next_after is None:
            one.next_after = failure.after
        delay = one.next_after if one.next_after is not None else handler.subscription.every or 0.0
        context.retries.stopping.failed(handler, failure)
        for message in one:
            if not failure.stop:
                count_retry(handler, message, failure, delay=delay, group=context.group, observe=context.observe)
                message.reconsume_times += 1
        if not one:
            context.observe(LoopFailed(f"poll {self.queue}", f"{handler.name} failed: {failure}"))
