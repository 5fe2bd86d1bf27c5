"""The orderly way: messages of one queue one by one, under a lock that a broker holds for the group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.items import cut, first_of, last_of, messages_of
from rocketapp.consumer.quarantine import QueueQuarantine
from rocketapp.consumer.rollout.forward import Unmatched
from rocketapp.consumer.ways.by_offset import ByOffset, Prompting
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import QueueLock, lock_for
from rocketapp.consumer.ways.manual_commits import ManualCommits, Uncommitted
from rocketapp.consumer.ways.retries_in_place import RetriesInPlace
from rocketapp.consumer.ways.serial_way import SerialDelivery, SerialWay
from rocketapp.consumer.workers.serial import NOT_STARTED, RUN, SerialExecutor, Stopped
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.state.tag_table import TagTable
from rocketapp.wire.record import Message


class OrderlyWay(SerialWay):
    """Calls the orderly handlers of one group."""

    def __init__(self, topics: Iterable[ConsumedTopic], context: WayContext) -> None:
        super().__init__(context)
        self._unmatched = Unmatched(context.forwarding, self.new_executor)
        self._tables = {
            topic.topic: TagTable((self.new_executor(each), each.subscription.tags) for each in topic.handlers)
            for topic in topics
        }

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


_TURN = 0.005
"""Seconds that a queue may keep the loop before it lets other tasks run."""


class OrderlyDelivery(SerialDelivery):
    """The messages of one session on their way, one at a time."""

    def __init__(
        self,
        process_queue: ProcessQueue[Message],
        lock: QueueLock,
        table: TagTable[SerialExecutor],
        unmatched: Unmatched[SerialExecutor],
        way: SerialWay,
    ) -> None:
        """`unmatched`: who takes messages that no handler of the table wants."""
        super().__init__(process_queue, lock, way)
        self._table, self._unmatched, self._context = table, unmatched, way.context
        self._ready: deque[tuple[SerialExecutor | None, list[Message]]] = deque()
        self._is_trial = False
        """One item may start during a hold."""
        self._completions: dict[int, ByOffset] = {}
        self._uncommitted = Uncommitted(process_queue)
        """Of handlers that commit by hand."""
        self._retries = RetriesInPlace(process_queue, self._ended, self._context)
        journal = self._context.journal
        self._note, self._record = None if journal is None else journal.note(), b""
        self._quarantine: QueueQuarantine | None = None
        self._in_turn: Message | None = None
        """The next message, when it is quarantined and was not called yet."""
        if journal is not None:
            self._quarantine = QueueQuarantine(journal, self._context.member, process_queue) or None
        self._start(self._run(), "orderly")

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        for executor, run in self._table.runs(messages):
            for taker, part in [(executor, run)] if executor is not None else self._unmatched(self.queue.topic, run):
                self._ready.extend((taker, list(part[at : at + RUN])) for at in range(0, len(part), RUN))
        self._changed.set()

    def _close(self, runner: asyncio.Task[None]) -> None:
        self._retries.close()
        self._turn_over()
        if self._note is not None:
            self._note.close()
        super()._close(runner)

    async def _run(self) -> None:
        turn_end = self._loop.time() + _TURN
        while (self._ready and not self._ended.done()) or await self._has_more(None):
            executor, messages = self._ready.popleft()
            if executor is None:
                self._process_queue.finish_all(messages)
                self._context.member.stats.count_unmatched(self.queue.topic, len(messages))
            else:
                items = _given_out(self._to_note(await self._items(executor, messages)))
                messages = []  # finished messages are kept in memory neither now nor while the runner waits
                if not await self._handle(executor, items):
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

    async def _has_more(self, until: float | None) -> bool:
        """Wait for messages; False when the delivery was ended, or the time is over."""
        while not self._ready and not self._ended.done():
            self._changed.clear()
            try:
                async with asyncio.timeout_at(until):
                    await self._changed.wait()
            except TimeoutError:
                return False
        return not self._ended.done()

    async def _items(self, executor: SerialExecutor, messages: list[Message]) -> list[Any]:
        """The messages that follow directly for the same handler, as single messages or as batches."""
        is_single = executor.batch is None
        most, until = executor.batch or executor.most, self._loop.time() + executor.handler.subscription.batch_wait
        self._in_turn = None
        if self._quarantine and executor.handler.runs_here:
            if rest := messages[1:]:
                self._ready.appendleft((executor, rest))
            most, messages = 1, await self._without_dead(executor.handler, messages[0])
            if not messages:
                return []
        while len(messages) < most:
            if self._ready:
                following, more = self._ready[0]
                if following is not executor or (is_single and len(messages) + len(more) > most):
                    break
                self._ready.popleft()
                messages += more
            elif is_single or not await self._has_more(until):
                break
        if self._retries.earlier:
            messages = await self._retries.without_exhausted(executor.handler, messages)
        return messages if is_single else cut(messages, most)

    async def _without_dead(self, handler: Handler, message: Message) -> list[Message]:
        """Quarantined messages are handled one at a time; those that are known as the cause are dead letters."""
        quarantine = self._quarantine
        if quarantine is None or message not in quarantine:
            return [message]
        self._in_turn = message
        if message.offset in self._retries.earlier:
            return [message]
        if (dead := quarantine.dead_letter_of(message, handler)) is None:
            self._retries.count_from_here(message)
            return [message]
        if await self._retries.store_dead_letter(handler, message, Failure("DeadLetter", dead.reason, dead=True)):
            quarantine.settled(message.offset)
        return []

    def _to_note(self, items: list[Any]) -> list[Any]:
        """The same items: while they run it is noted down that they are in hand."""
        if self._context.journal is not None and items:
            first, last = first_of(items[0]), last_of(items[-1])
            group = self._context.member.name
            self._record = self._context.journal.record(group, self.queue, first.offset, last.offset)
        return items

    async def _handle(self, executor: SerialExecutor, items: deque[Any]) -> bool:
        """See these items through; False when the delivery ended, or its lock was lost, before the last."""
        completion = self._completion(executor)
        rest = upcoming = iter(items.popleft, None)
        self._executor = executor
        while True:
            if upcoming is rest and len(items) <= 1:  # its mark
                return True
            if not (self._starts_at_once(executor) or await self._may_start(executor)):
                return False
            is_trial, self._is_trial = self._is_trial, False
            try:
                is_noted = self._note is not None and executor.handler.runs_here
                run = self._run_noted if is_noted else self._run_items
                stopped = await run(executor, upcoming, completion, only_one=is_trial)
            finally:
                executor.free_calls.release()
            if stopped is not NOT_STARTED or len(items) <= 1:
                # A long call ends a run: nothing of it is left then, and the run has not failed either.
                self._turn_over()
            if stopped is None:
                upcoming = rest  # a retried item is done
            elif stopped.item is not None:
                if not await self._is_valid(stopped.item):
                    return False
                failures = completion.settle(*stopped)
                # The traceback of an exception keeps the handler's frames alive, and the pause may be long.
                stopped = None
                if (retried := await self._retries.see_to(executor.handler, failures)) is None:
                    return False
                if completion.rolled_back:
                    self._handle_again(executor, retried, items)
                    return True
                upcoming = _again(executor, retried, items) if retried else rest
                failures, retried = [], []

    def _handle_again(self, executor: SerialExecutor, messages: list[Message], items: deque[Any]) -> None:
        """What is not committed, then these messages, then the items that were not started."""
        rest = [message for item in items if item is not None for message in messages_of(item)]
        runs = [*self._uncommitted.take(), (executor, messages), (executor, rest)]
        self._ready.extendleft(reversed([run for run in runs if run[1]]))

    def _starts_at_once(self, executor: SerialExecutor) -> bool:
        """Take a free call, if nothing is to be waited for."""
        if self._in_turn is not None or self._held or self._ended.done():
            return False
        return self._loop.time() < self._permit.lease.certain_until and executor.free_calls.take()

    async def _may_start(self, executor: SerialExecutor) -> bool:
        """Wait for all that a call needs; False when there will be none. A free call comes last: others use it."""
        return await self._has_turn(executor) and await self._is_time() and await self._take_call(executor)

    async def _has_turn(self, executor: SerialExecutor) -> bool:
        """Wait for the turn of the next message, if it is quarantined; False when the delivery ended before."""
        message, quarantine = self._in_turn, self._quarantine
        if message is None or quarantine is None or quarantine.has_turn(message):
            return True
        return await quarantine.turn(message, executor.handler, self._ended)

    def _turn_over(self) -> None:
        """The message was called, or is left to the next owner of the queue."""
        if self._in_turn is not None and self._quarantine is not None:
            self._quarantine.turn_over(self._in_turn)
            self._in_turn = None

    async def _run_noted(
        self, executor: SerialExecutor, items: Iterator[Any], completion: ByOffset, *, only_one: bool
    ) -> Stopped | None:
        """The same with a record of what is in flight."""
        assert self._note is not None
        try:
            self._note.write(self._record)
            return await self._run_items(executor, items, completion, only_one=only_one)
        finally:
            self._note.clear()

    async def _run_items(
        self, executor: SerialExecutor, items: Iterator[Any], completion: ByOffset, *, only_one: bool
    ) -> Stopped | None:
        if not only_one:
            return await executor.run(items, self._permit, completion)
        self._permit.withheld = self._ended.done()
        try:
            return await executor.run(islice(items, 1), self._permit, completion)
        finally:
            self._permit.withheld = self._held or self._ended.done()

    def _completion(self, executor: SerialExecutor) -> ByOffset:
        known = self._completions.get(id(executor))
        if known is None:
            queue, handler, prompt = self._process_queue, executor.handler, self._context.prompt
            if handler.decisions is None:
                known = Prompting(queue, handler, prompt)
            else:
                known = ManualCommits(queue, executor, handler.decisions, self._uncommitted, prompt)
            self._completions[id(executor)] = known
        return known

    async def _is_time(self) -> bool:
        """Wait for the end of a pause and for a lock that is certain; False when there will be none."""
        while not self._ended.done():
            if self._held and not self._is_trial:
                executor = self._executor
                if executor is not None and self._take is not None and self._take(executor.handler.name):
                    self._is_trial = True
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


def _given_out(items: list[Any]) -> deque[Any]:
    """The items, to be taken from the front up to the mark of their end; an item that was given out is not kept."""
    left = deque(items)
    left.append(None)
    return left


def _again(executor: SerialExecutor, messages: list[Message], items: deque[Any]) -> Iterator[Any]:
    """What comes next of these messages; batches of them that have to wait for it go before the other items."""
    if executor.batch is None:
        return iter(messages)
    batch, *others = cut(messages, executor.batch)
    items.extendleft(reversed(others))
    return iter([batch])
