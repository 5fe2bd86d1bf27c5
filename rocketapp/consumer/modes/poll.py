"""Polled handlers: one is called for each queue at its times, and pulls as many messages as it wants.

What a call has pulled is done when it returns. When it fails, nothing of it is done: the next call gets the same
messages. Under the lock of the queue two calls never overlap in the group; when its lease is over, nothing starts or is
acknowledged before the lock is certain again.

Between calls a queue holds messages for the next one, up to its limits: a call can have no more.

A call is one item of a line, a batch to which the handler adds what it pulls: so its lease, its drain, concurrency,
threads and cancellation are those of messages in order. What is decided here is when the next call is due, what a call
takes, and what its end means for the offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.blocked import CALL_PATIENCE, Text
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.modes.by_message import MessageDelivery, MessageMode
from rocketapp.consumer.modes.delivery import ModeContext
from rocketapp.consumer.modes.lines import LineRun
from rocketapp.consumer.modes.outcomes import failure_of
from rocketapp.consumer.modes.sink import decode_wanted
from rocketapp.consumer.pull.puller import Decode
from rocketapp.consumer.retry.redelivery import count_retry
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import Taker
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import Outcome, outcomes_by_message
from rocketapp.model.subscription import Subscription
from rocketapp.state.flow_control import FLOW_PATIENCE, QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.user_line import file_of, log_traceback
from rocketapp.wire.record import Message

_ANSWER_TIME = 1.0
"""Seconds that a call waits for more messages: a broker that has some answers within this time."""


class PolledMode(MessageMode):
    """Calls one polled handler, for up to `concurrency` queues at once. Nothing is recorded in the journal."""

    def __init__(self, topic: ConsumedTopic, context: ModeContext) -> None:
        """`topic` has one handler."""
        super().__init__([topic], replace(context, journal=None), in_order=True)
        self.handler: Handler = topic.handlers[0]
        self.caller: Caller = self.callers.one(self.handler)
        self.caller.call = self._begin
        self.decode: Decode = partial(decode_wanted, self.handler, context.member)

    def _begin(self, batch: PolledBatch) -> object:
        """Call the handler, in a thread if it is a sync one."""
        batch.begins()
        return self.handler.call(batch)

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """A queue at its limits waits for its next call, which is no fault."""
        every = self.handler.subscription.every or 0.0
        return replace(super().limits(config), patience=every + FLOW_PATIENCE)

    def open(self, process_queue: ProcessQueue[Message]) -> PolledDelivery:  # type: ignore[override]
        """A delivery for a new session."""
        return PolledDelivery(process_queue, self)


class PolledBatch(list[Message]):
    """One call for one queue, and the messages that it has pulled so far."""

    def __init__(self, delivery: PolledDelivery) -> None:
        super().__init__()
        self.delivery: PolledDelivery = delivery
        self.queue: MessageQueue = delivery.queue
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.next_after: float | None = None
        """Seconds from the end of this call to the next one; None: as declared."""
        self.started: float = self.loop.time()
        """When the handler was called; before that, when it was due."""
        self.has_begun: bool = False
        self.is_over: bool = False
        """The call has ended."""
        self.around_pull: Callable[[Awaitable[list[Message]]], Awaitable[list[Message]]] | None = None
        """Set by what stands around the handler: awaits each pull of the call, and returns what it brought."""

    def begins(self) -> None:
        """The handler is called now, perhaps in a thread."""
        self.started, self.has_begun = self.loop.time(), True

    async def take(self, most: int) -> list[Message]:
        """Up to `most` messages. Raises RuntimeError when the call has ended."""
        self._check("pull")
        taking = self.delivery.take(self, most)
        return await (taking if self.around_pull is None else self.around_pull(taking))

    @property
    def is_cut(self) -> bool:
        """Whether the call gets no more messages: its queue is given up, or this process was forked."""
        return not self.is_over and self.delivery.is_cut

    def next_in(self, seconds: float) -> None:
        """Set the time until the next call, counted from the end of this one. Raises RuntimeError after its end."""
        self._check("use next_in")
        self.next_after = seconds

    def _check(self, mend: str) -> None:
        if self.is_over:
            raise RuntimeError(f"this call for {self.queue} has ended: {mend} while the handler runs")


class PolledDelivery(MessageDelivery):
    """One session of one queue: pulled messages wait for the next call."""

    def __init__(self, process_queue: ProcessQueue[Message], mode: PolledMode) -> None:
        super().__init__(process_queue, mode, mode.context.redelivery)
        self._handler, self._member = mode.handler, mode.context.member
        self._call = self._taker(mode.caller)
        self._waiting: deque[Message] = deque()
        """Messages that no call has taken."""
        self._changed = asyncio.Event()
        """Messages came, or the delivery was ended."""
        self._every = mode.handler.subscription.every or 0.0
        self._batch: PolledBatch | None = None
        """The call that is due or runs, or was the last one."""
        line = self._new_line(0)
        self._do(line, self._next_call(line, 0.0))

    @property
    def is_cut(self) -> bool:
        """Whether calls get no more messages: the queue is given up, or this process was forked."""
        return self._ended.done() or self._callers.is_halted

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        self._waiting.extend(messages)
        self._changed.set()

    # What the running call takes.

    async def take(self, batch: PolledBatch, most: int) -> list[Message]:
        """Give messages to the call: those that are there, or that come within a moment."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_TIME):
                while len(self._waiting) < most and self._may_pull(batch) and not self._is_at_end():
                    self._changed.clear()
                    await self._changed.wait()
        if not self._may_pull(batch):
            return []
        found = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        batch.extend(found)
        return found

    def _may_pull(self, batch: PolledBatch) -> bool:
        """Whether this call may be given messages: not when the queue is given up, or a pause has begun since."""
        return not (self._ended.done() or self.is_void or self._call.caller.is_paused_for(batch))

    def _is_at_end(self) -> bool:
        """Whether the broker's last answer was empty, or the queue is at its limits."""
        queue = self._process_queue
        if len(queue) >= self._member.limits.of(self.queue.topic).queue_max_messages:
            return True
        return queue.broker_end is not None and queue.end_offset >= queue.broker_end

    # The end.

    def end(self, *, start_no_more: bool = False) -> None:
        """Start no more calls; the running one goes on with the messages it has."""
        super().end(start_no_more=True)
        self._changed.set()
        if self._waiting:
            self._process_queue.withdraw(self._waiting[0].offset)
            self._waiting.clear()

    async def abandon(self) -> bool:
        """Cancel the running call; whether it has ended. A thread goes on, and so may a handler."""
        self._callers.collect()  # what was done before counts
        if any(run.walkers and not run.item for run in self.runs()):
            # The line about a cut drain tells of calls by their messages.
            text = f"handler {self._handler.name} is cut: it has pulled nothing"
            self._member.observe(LoopFailed(f"poll {self.queue}", text))
        return await super().abandon()

    # The calls.

    async def _next_call(self, line: LineRun, after: float) -> None:
        """Call the handler after so many seconds."""
        await asyncio.wait([self._ended], timeout=after)
        if self._ended.done():
            return
        self._batch = PolledBatch(self)
        line.items.append((self._call, self._batch))
        self._proceed(line)

    def why_it_waits(self, stood_still: float) -> Text:
        """The call that is due has not begun, or has pulled nothing since. What waits for the next one is no fault."""
        batch = self._batch
        if batch is None or batch or batch.is_over or self._loop.time() < batch.started + CALL_PATIENCE:
            return ""  # the watch sees a call that has messages by those
        if batch.has_begun:
            return partial(self._pulls_nothing, batch.started)
        return self._call.caller.lacks

    def _pulls_nothing(self, started: float) -> str:
        return f"{self._handler.name} has been running for {self._loop.time() - started:.0f} s and has pulled nothing"

    def ended_call(self, line: LineRun, taker: Taker, item: Any, result: object, raised: bool) -> None:
        """A call has ended."""
        item.is_over = True
        super().ended_call(line, taker, item, result, raised)

    def _acknowledge(self, line: LineRun, taker: Taker, item: Any, result: object, raised: bool) -> None:
        """Acknowledge what the call has pulled, or keep it for the next one."""
        failure = _failure_of_call(result, item, self._handler.subscription, raised=raised)
        if failure is None:
            taker.acks.done_all(item)
            self.tidy_soon()
        else:
            self._failed(item, result, failure)
        after = item.next_after
        if after is None:
            after = max(0.0, item.started + self._every - self._loop.time())
        line.item = None
        self._do(line, self._next_call(line, after))

    def _failed(self, batch: PolledBatch, result: object, failure: Failure) -> None:
        context, handler, member = self._context, self._handler, self._member
        if isinstance(result, BaseException) and not isinstance(result, Outcome):
            log_traceback(result, handler.subscription)
        self._waiting.extendleft(reversed(batch))
        if failure.after is not None and batch.next_after is None:
            batch.next_after = failure.after
        delay = self._every if batch.next_after is None else batch.next_after
        context.stopping.failed(handler, failure)
        for message in batch:
            if not failure.parked:
                count_retry(member, handler, message, failure, delay)
                message.reconsume_times += 1
        if not batch:
            member.observe(LoopFailed(f"poll {self.queue}", f"{handler.name} failed: {failure}"))


def _failure_of_call(
    result: object, messages: Sequence[Message], about: Subscription, *, raised: bool
) -> Failure | None:
    """Why a call failed, or None. It succeeds or fails as a whole: outcomes of single messages cannot be kept."""
    home = file_of(about)
    if not raised:
        try:
            single = outcomes_by_message(result, messages) or {}
        except TypeError as error:
            return Failure("TypeError", str(error))
        if any(failure_of(one, False, home) is not None for one in single.values()):
            problem = "it returned outcomes of single messages, and a polled call is done or not as a whole"
            return Failure("TypeError", f"{problem}: raise, or publish those messages yourself")
    return failure_of(result, raised, home)
