"""The polled way: a handler is called for each queue at its times, and pulls as many messages as it wants.

What a call has pulled is done when it returns. When it fails, nothing of it is done: the messages stay in their process
queue, and the next call gets them again.

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
from rocketapp.consumer.pull.flow import QueueFlow
from rocketapp.consumer.retry.redelivery import count_retry
from rocketapp.consumer.stalls import OF_CALL
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import QueueLock, lock_for
from rocketapp.consumer.ways.outcomes import failure_of
from rocketapp.consumer.ways.serial_way import CALL_PATIENCE, SerialDelivery, SerialWay
from rocketapp.consumer.workers.serial import SerialExecutor, Stopped
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import Outcome, outcomes_by_message
from rocketapp.model.subscription import Subscription
from rocketapp.state.flow_control import FLOW_PATIENCE, REOPEN, QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.state.tag_table import TagTable
from rocketapp.user_line import file_of, log_traceback
from rocketapp.wire.record import Message

_USUAL = 32
"""Messages that a queue holds for its first call."""
_ANSWER_TIME = 1.0
"""Seconds that a call waits for more messages: a broker that has some answers within this time."""


class PolledWay(SerialWay):
    """Calls the polled handlers of one group."""

    def __init__(self, topics: Iterable[ConsumedTopic], context: WayContext) -> None:
        """`topics`: each has one handler."""
        super().__init__(context)
        self._of_topics = {topic.topic: self.new_executor(topic.handlers[0]) for topic in topics}

    def open(self, process_queue: ProcessQueue[Message], lock: QueueLock | None, flow: QueueFlow) -> PolledDelivery:
        """The delivery of a new session under this lock."""
        lock = lock_for(process_queue, lock, needs_lock=self.needs_lock)
        return PolledDelivery(process_queue, lock, self._of_topics[process_queue.message_queue.topic], flow, self)

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """Before the first call. No span: calls of a queue follow one another."""
        return QueueLimits(_USUAL, config.queue_max_bytes, None)


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

    @property
    def is_cut(self) -> bool:
        """The call runs on, and gets no more: its queue is given up, or this process was forked."""
        return self._delivery is not None and self._delivery.is_ended

    def next_in(self, seconds: float) -> None:
        """Call again this long after the end of this call. Raises RuntimeError when it has ended."""
        if self._delivery is None:
            raise RuntimeError(f"this call for {self.queue} has ended: use next_in while the handler runs")
        self.next_after = seconds

    def end(self) -> None:
        """The call has ended."""
        self._delivery = None


class PolledDelivery(SerialDelivery):
    """The messages of one session, which wait for the next call."""

    def __init__(
        self,
        process_queue: ProcessQueue[Message],
        lock: QueueLock,
        executor: SerialExecutor,
        flow: QueueFlow,
        way: PolledWay,
    ) -> None:
        """`flow`: it is told how much the queue may hold."""
        super().__init__(process_queue, lock, way)
        self._context, self._flow = way.context, flow
        self._executor = executor
        self._handler = executor.handler
        self._table = TagTable([(self._handler, self._handler.subscription.tags)])
        self._kept: deque[Message] = deque()
        """Messages that no call has, in offset order."""
        self._usual = _USUAL
        """Messages that are held for the next call."""
        self._next_at = self._loop.time()
        self._hold_at_most(self._usual)
        self._start(self._run(executor), "poll")

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        for handler, share in self._table.runs(messages):
            if handler is not None:
                self._kept.extend(share)
            else:
                # Brokers compare hashes of tags alone.
                self._process_queue.finish_all(share)
                self._context.member.stats.count_unmatched(self.queue.topic, len(share))
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
            self._context.member.stalls.moving(self.queue, place=OF_CALL)
        return found

    @property
    def is_ended(self) -> bool:
        """Nothing more begins, and nothing more is given."""
        return self._ended.done()

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
        if not self._process_queue.closed:
            every = self._handler.subscription.every or 0.0
            told = f"which wait for the next call of {self._handler.name}, every {every:g} s"
            self._flow.hold_at_most(messages, told, patience=every + FLOW_PATIENCE)

    async def abandon(self) -> bool:
        """Cancel the running call; whether it has ended. A thread goes on, and so may a handler."""
        if self._permit.item is not None and not self._permit.item:
            # The line about a cut drain tells of calls by their messages.
            text = f"handler {self._handler.name} is cut: it has pulled nothing"
            self._context.member.observe(LoopFailed(f"poll {self.queue}", text))
        return await super().abandon()

    def in_hand(self) -> tuple[Handler, Any] | None:
        """The running call, once it has pulled something: its handler, and the messages."""
        return super().in_hand() if self._permit.item else None

    # The calls.

    async def _run(self, executor: SerialExecutor) -> None:
        every = self._handler.subscription.every
        assert every is not None, "a polled handler has its interval"
        while await self._is_time():
            if not await self._take_call(executor):
                return
            started, one = self._loop.time(), Round(self)
            reason = partial(self._standing, started)
            self._context.member.stalls.blocked(self.queue, reason, patience=CALL_PATIENCE, place=OF_CALL)
            try:
                stopped = await executor.run(iter((one,)), self._permit, self)
            finally:
                executor.free_calls.release()
                self._context.member.stalls.moving(self.queue, place=OF_CALL)
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
            elif now < self._permit.lease.certain_until:
                self._permit.withheld = self._ended.done()
                return not self._ended.done()
            elif not await self._is_usable():
                return False
        return False

    def done(self, one: Any) -> None:
        """A call has returned: its Round is done (workers.work.Acknowledge)."""
        one.is_done = True
        self._handler.stats.handled += len(one)
        self._process_queue.finish_all(one)
        self._context.prompt(self._process_queue)

    def done_all(self, messages: Sequence[Any]) -> None:
        """The same for a call in a thread."""
        for one in messages:
            self.done(one)

    async def _settle(self, one: Round, stopped: Stopped) -> bool:
        """Judge a call that returned something, failed, or ended beside its lock; False when the session is over."""
        if self._process_queue.closed:
            return False
        if self._loop.time() >= self._permit.lease.certain_until and not await self._is_usable():
            return False
        result, about = stopped.result, self._handler.subscription
        failure = _failure_of_call(result, one, about, raised=stopped.raised)
        if failure is None:
            self.done(one)
        else:
            if isinstance(result, BaseException) and not isinstance(result, Outcome):
                log_traceback(result, about)
            self._failed(one, failure)
        return True

    def _failed(self, one: Round, failure: Failure) -> None:
        """Nothing is done: the next call gets the same messages."""
        context, handler = self._context, self._handler
        self._kept.extendleft(reversed(one))
        if failure.after is not None and one.next_after is None:
            one.next_after = failure.after
        delay = one.next_after if one.next_after is not None else handler.subscription.every or 0.0
        context.stopping.failed(handler, failure)
        for message in one:
            if not failure.stop:
                count_retry(context.member, handler, message, failure, delay)
                message.reconsume_times += 1
        if not one:
            context.member.observe(LoopFailed(f"poll {self.queue}", f"{handler.name} failed: {failure}"))


def _failure_of_call(
    result: object, messages: Sequence[Message], about: Subscription, *, raised: bool
) -> Failure | None:
    """Why a call failed, or None. It is done or not as a whole: what it says of single messages cannot be kept."""
    home = file_of(about)
    if not raised:
        try:
            single = outcomes_by_message(result, messages) or {}
        except TypeError as error:
            return Failure("TypeError", str(error))
        if any(failure_of(one, False, home) is not None for one in single.values()):
            problem = "it returned outcomes of single messages, and a polled call is done or not as a whole"
            return Failure("TypeError", f"{problem}: raise, or publish those messages elsewhere")
    return failure_of(result, raised, home)
