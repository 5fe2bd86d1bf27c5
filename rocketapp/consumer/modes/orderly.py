"""The orderly mode: messages of one queue one by one, under a lock that a broker holds for the group.

Each session has one runner, so two calls of a queue never overlap; under its lock this holds across the group. When the
lease of the lock is over, nothing starts before the lock is certain again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.items import cut, first_of, last_of, messages_of
from rocketapp.consumer.modes.by_offset import ByOffset, Prompting
from rocketapp.consumer.modes.context import ModeContext
from rocketapp.consumer.modes.delivery import Pulled, QueueLock, lock_for
from rocketapp.consumer.modes.manual_commits import ManualCommits, Uncommitted
from rocketapp.consumer.modes.retries_in_place import RetriesInPlace
from rocketapp.consumer.quarantine import QueueQuarantine
from rocketapp.consumer.rollout.forward import Unmatched
from rocketapp.consumer.stalls import OF_CALL
from rocketapp.consumer.workers.free_calls import call_before
from rocketapp.consumer.workers.serial import NOT_STARTED, Items, Permit, SerialExecutor, SerialTaker, Stopped, run
from rocketapp.consumer.workers.threads import ThreadPool
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.pauses import Take
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message

_TURN = 0.005
"""Seconds that a queue may keep the loop before it lets other tasks run."""
_MOST_THREADS = 100_000
"""Each call in a thread has a free call of its handler, and they are limited."""
_CALL_PATIENCE = 10.0
"""Seconds of waiting for a free call after which a queue is said to be blocked."""


class OrderlyMode(Pulled):
    """Calls the orderly handlers of one group, one call of a queue at a time."""

    run_on: float | None = None

    def __init__(self, topics: Iterable[ConsumedTopic], context: ModeContext) -> None:
        self.context: ModeContext = context
        self.needs_lock: bool = not context.member.broadcast
        self.tasks: Tasks = Tasks(context.member.observe)
        self.deliveries: dict[OrderlyDelivery, None] = {}
        """Those whose runner has not ended, in the order of their opening."""
        self._executors: list[SerialExecutor] = []
        self._threads: ThreadPool | None = None
        """Of all sync handlers: a run passes from one to another in the same thread."""
        self._unmatched = Unmatched(context.forwarding, self._new_executor)
        self._tables = {
            topic.topic: TagTable((self._new_executor(each), each.subscription.tags) for each in topic.handlers)
            for topic in topics
        }

    def _new_executor(self, handler: Handler) -> SerialExecutor:
        """What calls this handler."""
        self._executors.append(SerialExecutor(handler, None if handler.subscription.is_async else self._in_threads()))
        return self._executors[-1]

    def _in_threads(self) -> ThreadPool:
        if self._threads is None:
            self._threads = self.context.threads("handlers in order", _MOST_THREADS)
        return self._threads

    def open(
        self, process_queue: ProcessQueue[Message], lock: QueueLock | None, _flow: object = None
    ) -> OrderlyDelivery:
        """The delivery of a new session under this lock."""
        lock = lock_for(process_queue, lock, needs_lock=self.needs_lock)
        return OrderlyDelivery(
            process_queue, lock, self._tables[process_queue.message_queue.topic], self._unmatched, self
        )

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """No span: the lowest unfinished message is the only one that runs."""
        return QueueLimits(
            config.queue_max_messages,
            config.queue_max_bytes,
            max_span=None,
            topic_messages=config.topic_max_messages,
            topic_bytes=config.topic_max_bytes,
        )

    def in_flight(self) -> list[tuple[Handler, Any]]:
        """Every running call that has messages: its handler, and what it works on."""
        return [hand for delivery in self.deliveries if (hand := delivery.in_flight()) is not None]

    def pace(self, handler: Handler, concurrency: int, rate: float | None, batch: int | None) -> None:
        """Run this many calls of a handler at once, start this many messages a second, at most `batch` in one call."""
        for executor in self._executors:
            if executor.handler is handler:
                executor.free_calls.resize(concurrency)
                if batch is not None:
                    executor.batch = batch
                if rate is not None:
                    executor.change_rate(rate)

    async def stop(self) -> None:
        """Cancel what can be cancelled."""
        for delivery in list(self.deliveries):
            delivery.abandon_soon()
        await self.tasks.close()
        if self._threads is not None:
            self._threads.stop()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        for delivery in self.deliveries:
            delivery.abandon_soon()
        if self._threads is not None:
            self._threads.halt()


class OrderlyDelivery:
    """The messages of one session on their way, one at a time."""

    def __init__(
        self,
        process_queue: ProcessQueue[Message],
        lock: QueueLock,
        table: TagTable[SerialExecutor],
        unmatched: Unmatched[SerialExecutor],
        mode: OrderlyMode,
    ) -> None:
        """`unmatched`: who takes messages that no handler of the table wants."""
        self.queue: MessageQueue = process_queue.message_queue
        self._process_queue, self._lock, self._mode = process_queue, lock, mode
        self._loop = asyncio.get_running_loop()
        self._permit = Permit(lock.lease)
        self._changed = asyncio.Event()
        """Messages came, a pause began or ended, or the delivery was ended."""
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._held = False
        self._take: Take | None = None
        """Asked during a pause whether one call may start all the same."""
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing more may start: the lock is lost, or after `end`. With an exception when it has failed."""
        self._unmatched, self._context = unmatched, mode.context
        self._ready: Items = deque()
        """What was not started: messages, and batches that were formed already."""
        self._uncommitted = Uncommitted(process_queue)
        """Of handlers that commit by hand."""
        self._completions: dict[int, ByOffset] = {}
        """By the identity of the executor."""
        self._takers: dict[int, SerialTaker] = {}
        self._table = table.with_each(self._taker)
        self._is_probe = False
        """One item may start during a pause."""
        self._retries = RetriesInPlace(process_queue, self._ended, self._context)
        journal = self._context.journal
        self._note = None if journal is None else journal.note()
        self._quarantine: QueueQuarantine | None = None
        self._in_turn: Message | None = None
        """The next message, when it is quarantined and was not called yet."""
        self._checked = -1
        """Up to this offset it is counted what dead processes and earlier sessions have done: once for each message."""
        if journal is not None:
            self._quarantine = QueueQuarantine(journal, self._context.member, process_queue) or None
        mode.deliveries[self] = None
        mode.context.member.pauses.watch(self.queue.topic, self._look_at_pauses)
        self._look_at_pauses()
        self._runner = mode.tasks.start(self._run(), f"orderly {self.queue}")
        self._runner.add_done_callback(self._close)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._process_queue}>"

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        takers = [taker for taker in self._table.takers(messages) if taker is not None]
        if len(takers) == len(messages):
            self._ready.extend(zip(takers, messages, strict=True))
        else:
            for taker, part in self._table.runs(messages):
                if taker is None:
                    self._add_unmatched(part)
                else:
                    self._ready.extend((taker, message) for message in part)
        self._changed.set()

    def _add_unmatched(self, messages: Sequence[Message]) -> None:
        for executor, part in self._unmatched(self.queue.topic, messages):
            if executor is None:
                self._process_queue.finish_all(part)
                self._context.member.stats.count_unmatched(self.queue.topic, len(part))
            else:
                taker = self._taker(executor)
                self._ready.extend((taker, message) for message in part)

    def _taker(self, executor: SerialExecutor) -> SerialTaker:
        known = self._takers.get(id(executor))
        if known is None:
            queue, handler, prompt = self._process_queue, executor.handler, self._context.prompt
            completion: ByOffset
            if handler.decisions is None:
                completion = Prompting(queue, handler, prompt)
            else:
                completion = ManualCommits(queue, executor, handler.decisions, self._uncommitted, prompt)
            self._completions[id(executor)] = completion
            known = self._takers[id(executor)] = SerialTaker(executor, completion)
        return known

    def _close(self, runner: asyncio.Task[None]) -> None:
        """The runner has ended."""
        self._retries.close()
        self._turn_over()
        if self._note is not None:
            self._note.close()
        self._mode.deliveries.pop(self, None)
        self._mode.context.member.pauses.unwatch(self.queue.topic, self._look_at_pauses)
        error = None if runner.cancelled() else runner.exception()
        if error is None:
            self.over.set_result(None)
        else:
            self.over.set_exception(error)
            self.over.exception()  # reported already, by the owner of the runner

    async def _run(self) -> None:
        turn_end = self._loop.time() + _TURN
        while (self._ready and not self._ended.done()) or await self._has_more(None):
            taker = self._ready[0][0]
            if await self._is_callable(taker):
                if not await self._call(taker):
                    return
                if self._quarantine is not None:
                    self._quarantine.settled_below(self._process_queue.commit_offset)
            if not self._ended.done():  # otherwise a message may be left that is not a dead letter yet
                self._retries.done_below(self._process_queue.commit_offset)
            self._context.prompt(self._process_queue)
            if not self._ready or self._loop.time() >= turn_end:
                # Handlers that never suspend must not keep the loop for themselves, nor their offset from being told.
                await asyncio.sleep(0)
                turn_end = self._loop.time() + _TURN

    async def _has_more(self, until: float | None, than: int = 0) -> bool:
        """Wait for more messages than these; False when the delivery was ended, or the time is over."""
        while len(self._ready) <= than and not self._ended.done():
            self._changed.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return not self._ended.done()

    # The next item.

    async def _is_callable(self, taker: SerialTaker) -> bool:
        """Whether the first item may be called; False when it was a dead letter, or the delivery ended before."""
        if not (self._quarantine or self._retries.earlier or taker.executor.batch is not None):
            return True
        quarantined = self._quarantine if self._quarantine and taker.handler.runs_here else None
        if (most := taker.executor.batch) is not None and quarantined is None:
            await self._form_batch(taker, most)
        item = self._ready[0][1]
        if last_of(item).offset <= self._checked and (most is None or not isinstance(item, Message)):
            return True
        self._checked, self._in_turn = last_of(item).offset, None
        messages = [one for one in messages_of(item) if not await self._is_dead(taker.handler, one, quarantined)]
        if self._ended.done():
            return False
        if len(messages) < len(messages_of(item)):
            self._ready.popleft()
            if messages:
                self._ready.appendleft((taker, messages))
        elif most is not None and item is messages[0]:
            self._ready[0] = taker, messages
        return bool(messages)

    async def _form_batch(self, taker: SerialTaker, most: int) -> None:
        """Put the messages in front that follow directly for the same handler, perhaps after a wait for more."""
        if not isinstance(self._ready[0][1], Message):
            self._put_back(taker, self._ready.popleft()[1])
            return
        until = self._loop.time() + taker.handler.subscription.batch_wait
        count = 0
        while count < most:
            if count == len(self._ready) and not await self._has_more(until, count):
                break
            following, item = self._ready[count]
            if following is not taker or not isinstance(item, Message):
                break
            count += 1
        batch = [self._ready.popleft()[1] for _ in range(count)]
        self._ready.appendleft((taker, batch))

    def _put_back(self, taker: SerialTaker, messages: Sequence[Message]) -> None:
        """They come next; those of a batch as batches, for which nothing is waited any more."""
        most = taker.executor.batch
        self._ready.extendleft((taker, item) for item in reversed(messages if most is None else cut(messages, most)))

    async def _is_dead(self, handler: Handler, message: Message, quarantine: QueueQuarantine | None) -> bool:
        """Whether it has no attempt left; then it is stored as a dead letter, unless the delivery ended before."""
        retries = self._retries
        if quarantine is not None and message in quarantine:
            self._in_turn = message
            if message.offset not in retries.earlier:
                if (dead := quarantine.dead_letter_of(message, handler)) is None:
                    retries.count_from_here(message)
                    return False
                if await retries.store_dead_letter(handler, message, Failure("DeadLetter", dead.reason, dead=True)):
                    quarantine.settled(message.offset)
                self._in_turn = None
                return True
        if not (retries.earlier and retries.is_exhausted(handler, message)):
            return False
        reason = f"the lock of its queue was lost during the last of {message.reconsume_times} attempts"
        await retries.store_dead_letter(handler, message, Failure("LockLost", reason))
        return True

    # The call.

    async def _call(self, taker: SerialTaker) -> bool:
        """Call for the first items, and see to their outcome; False when the delivery ended, or its lock was lost."""
        if not (self._starts_at_once(taker) or await self._may_start(taker)):
            return False
        stopped = await self._run_items(taker)
        if stopped is not NOT_STARTED or not self._ready or first_of(self._ready[0][1]) is not self._in_turn:
            # A long call ends a run: the message was called then, and the run has not failed either.
            self._turn_over()
        if stopped is None or stopped.item is None:
            return True
        if not await self._is_valid(stopped.item):
            return False
        last = self._permit.taker or taker
        completion = self._completions[id(last.executor)]
        failures = completion.settle(*stopped)
        # The traceback of an exception keeps the handler's frames alive, and the pause may be long.
        stopped = None
        if (retried := await self._retries.see_to(last.handler, failures)) is None:
            return False
        if completion.rolled_back:
            for executor, messages in reversed([*self._uncommitted.take(), (last.executor, retried)]):
                self._put_back(self._taker(executor), messages)
        else:
            self._put_back(last, retried)
        return True

    async def _run_items(self, taker: SerialTaker) -> Stopped | None:
        """Run through the first items with the free call that was taken for the first one."""
        permit, note = self._permit, self._note if taker.handler.runs_here else None
        most = 1 if self._is_probe or self._quarantine or self._retries.earlier else taker.executor.most
        permit.taker = taker
        if self._is_probe:
            permit.withheld = self._ended.done()
        if note is not None:
            # What comes while a call is suspended is not in the note: it belongs to the next run.
            most = min(most, len(self._ready))
            note.write(self._record(most))
        try:
            return await run(self._ready, most, permit)
        finally:
            self._is_probe = False
            permit.withheld = self._held or self._ended.done()
            if note is not None:
                note.clear()
            if permit.taker is not None:
                permit.taker.free_calls.release()

    def _record(self, count: int) -> bytes:
        """What is noted down of the first items."""
        assert self._context.journal is not None
        first, last = first_of(self._ready[0][1]), last_of(self._ready[count - 1][1])
        return self._context.journal.record(self._context.member.name, self.queue, first.offset, last.offset)

    def _starts_at_once(self, taker: SerialTaker) -> bool:
        """Take a free call, if nothing is to be waited for."""
        if self._in_turn is not None or self._held or self._ended.done():
            return False
        return self._loop.time() < self._permit.lease.certain_until and taker.free_calls.take()

    async def _may_start(self, taker: SerialTaker) -> bool:
        """Wait for all that a call needs; False when there will be none. A free call comes last: others use it."""
        return await self._has_turn(taker) and await self._is_time(taker) and await self._take_call(taker.executor)

    async def _has_turn(self, taker: SerialTaker) -> bool:
        """Wait for the turn of the next message, if it is quarantined; False when the delivery ended before."""
        message, quarantine = self._in_turn, self._quarantine
        if message is None or quarantine is None or quarantine.has_turn(message):
            return True
        return await quarantine.turn(message, taker.handler, self._ended)

    def _turn_over(self) -> None:
        """The message was called, or is left to the next owner of the queue."""
        if self._in_turn is not None and self._quarantine is not None:
            self._quarantine.turn_over(self._in_turn)
            self._in_turn = None

    async def _is_time(self, taker: SerialTaker) -> bool:
        """Wait for the end of a pause and for a lock that is certain; False when there will be none."""
        while not self._ended.done():
            if self._held and not self._is_probe:
                if self._take is not None and self._take(taker.handler.name):
                    self._is_probe = True
                else:
                    self._changed.clear()
                    await self._changed.wait()
            elif self._loop.time() < self._permit.lease.certain_until:
                return True
            elif not await self._is_usable():
                return False
        return False

    async def _is_valid(self, item: Any) -> bool:
        """Whether the call that has ended counts: only if the lock was ours all the time. Otherwise it is repeated."""
        process_queue = self._process_queue
        if self._loop.time() < self._permit.lease.certain_until or await self._is_usable():
            return not process_queue.closed
        if process_queue.closed or not self._ended.done():
            # Another member may have had the queue meanwhile. The attempt counts all the same: a handler that blocks
            # the loop for longer than its lock lives would block it for ever.
            for message in messages_of(item):
                self._retries.count_attempt(message)
        return False

    def in_flight(self) -> tuple[Handler, Any] | None:
        """The running call: its handler, and what it works on."""
        taker, item = self._permit.taker, self._permit.item
        return None if item is None or taker is None else (taker.handler, item)

    # Pauses.

    def _look_at_pauses(self) -> None:
        pauses, topic = self._mode.context.member.pauses, self.queue.topic
        self._held, self._take = pauses.is_paused(topic), pauses.leave(topic)
        self._is_probe = False
        self._permit.withheld = self._held or self._ended.done()
        self._changed.set()

    # The end.

    def end(self, *, start_no_more: bool = False) -> None:
        """Start nothing more; the running call goes on with what it has."""
        self._permit.withheld = True
        self._changed.set()
        if not self._ended.done():
            self._ended.set_result(None)

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
        running = None if (call := self.in_flight()) is None else f"handler {call[0].name}"
        await self._mode.tasks.end([self._runner], running)
        return self._permit.item is None

    def abandon_soon(self) -> None:
        """Start nothing more; a cancellation of the running call is ours from now on."""
        self._permit.abandoned = True
        self.end()

    # What a call needs.

    async def _take_call(self, executor: SerialExecutor) -> bool:
        """Take a free call of its handler, perhaps after a wait; False, with none taken, when ended before."""
        free_calls, stalls = executor.free_calls, self._mode.context.member.stalls
        if not free_calls.locked():
            return await free_calls.acquire()
        reason = f"waits for a free call of handler {executor.handler.name} (concurrency {free_calls.most})"
        stalls.blocked(self.queue, reason, patience=_CALL_PATIENCE, place=OF_CALL)
        try:
            return await call_before(free_calls, self._ended)
        finally:
            stalls.moving(self.queue, place=OF_CALL)

    async def _is_usable(self) -> bool:
        """Wait until the lock is certain: True; or is lost, or the delivery ended before: False."""
        asking = self._mode.tasks.start(self._lock.usable(), f"lock {self.queue}")
        await asyncio.wait([asking, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if asking.done():
            return bool(asking.result())
        asking.cancel()
        return False
