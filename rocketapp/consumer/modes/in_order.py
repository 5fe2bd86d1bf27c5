"""The orderly and the keyed mode: messages one after the other, under a lock that a broker holds for the group.

What follows one another lies in one line: all messages of a queue, or those of one key for one handler. Lines go side
by side. A line is given to workers as long as the lease of the lock is certain: that is compared with the clock before
each start and after each call. A failed message rests at the front of its line until it is tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.items import cut, first_of, last_of, messages_of
from rocketapp.consumer.journal import Note
from rocketapp.consumer.modes.by_callers import ModeByCallers
from rocketapp.consumer.modes.by_offset import ByOffset, Prompting
from rocketapp.consumer.modes.context import ModeContext
from rocketapp.consumer.modes.delivery import QueueLock, lock_for
from rocketapp.consumer.modes.keys import OrderKeys
from rocketapp.consumer.modes.manual_commits import ManualCommits, Uncommitted
from rocketapp.consumer.modes.outcomes import text_of
from rocketapp.consumer.modes.retries_in_place import AfterFailure, RetriesInPlace
from rocketapp.consumer.stalls import OF_CALL
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import STINT, Run, Taker
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.handover import RUN_ON
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message

_CALL_PATIENCE = 10.0
"""Seconds of waiting for a free call after which a queue is said to be blocked."""


_SPARE = 256
"""Lines that are kept for other keys."""


class InOrderMode(ModeByCallers):
    """Calls the handlers of one group that want their messages in order."""

    run_on: float | None = None

    def __init__(self, topics: Iterable[ConsumedTopic], context: ModeContext, *, by_key: bool) -> None:
        """`by_key`: messages of one key follow one another, otherwise all messages of a queue."""
        super().__init__(context)
        self.keys: OrderKeys | None = OrderKeys(context.member) if by_key else None
        """None: all messages of a queue are in one line."""
        self.needs_lock: bool = not context.member.broadcast
        self.tasks: Tasks = self.callers.tasks
        self._tables = self.callers.tables(topics)

    def open(
        self, process_queue: ProcessQueue[Message], lock: QueueLock | None, _flow: object = None
    ) -> InOrderDelivery:
        """The delivery of a new session under this lock."""
        lock = lock_for(process_queue, lock, needs_lock=self.needs_lock)
        return InOrderDelivery(process_queue, lock, self._tables[process_queue.message_queue.topic], self)

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """No span where the lowest unfinished message is the only one that runs."""
        limits = super().limits(config)
        return limits if self.keys is not None else replace(limits, max_span=None)


class LineRun(Run):
    """Messages that follow one another."""

    in_order: bool = True
    is_at_work: bool = False
    """It is with workers, or its first message rests."""
    rests: bool = False
    """Its first message is not to start now, and is seen to, or is left to the next owner of the queue."""
    sees_to_first: bool = False
    """That is the first one of `items`; a message that has failed is not among them."""
    checked: int = -1
    """Up to this offset it is counted what dead processes and earlier sessions have done: once for each message."""
    in_turn: Message | None = None
    """Its first message, when that is quarantined and has its turn."""
    timer: asyncio.TimerHandle | None = None
    formed_by: float | None = None
    """When the batch of its first message is formed, full or not."""

    def __init__(self, delivery: InOrderDelivery, key: Hashable) -> None:
        super().__init__(())
        self._delivery = delivery
        self.key: Hashable = key
        self.lease: Lease = delivery.lease
        self.record_of: Callable[[int, int], bytes] | None = delivery.record_of
        self.notes_each: bool = delivery.has_keys

    def __repr__(self) -> str:
        return f"<LineRun {self.key!r}: {len(self.items)} messages>"

    @property
    def delivery(self) -> InOrderDelivery:
        """The session that it belongs to."""
        return self._delivery

    def note(self, note: Note, most: int) -> int:
        """What comes while a call is suspended is not in the note: it belongs to the next time."""
        items = self.items
        try:
            if self.record_of is None or not items[0][0].handler.runs_here:
                note.clear()
            elif not self.notes_each:
                most = min(most, len(items))
                note.write(self.record_of(first_of(items[0][1]).offset, last_of(items[most - 1][1]).offset))
        except IndexError:
            return 0  # it was given up meanwhile
        return most

    def ended(self, taker: Taker, item: Any, result: object, raised: bool) -> None:
        self.is_walked = False
        self._delivery.ended_call(self, taker, item, result, raised)

    def returned(self) -> None:
        if self.items or self.in_turn is not None:
            self._delivery.returned(self)
        else:
            self._delivery.is_through(self)

    def acknowledge(self, taker: Taker, items: Sequence[Message]) -> None:
        if not self._delivery.is_void:
            taker.done_all(items)

    def failed(self, error: BaseException) -> None:
        self._delivery.fail(error)

    @property
    def tells_that_it_waits(self) -> bool:  # type: ignore[override]
        return not self._delivery.has_keys

    def waits_for(self, caller: Caller) -> None:
        if self.waits and self.is_queued:
            self._delivery.waits_for(caller)

    def waits_no_more(self) -> None:
        self._delivery.waits_no_more()


class InOrderDelivery:
    """The messages of one session on their way, one at a time in each line."""

    def __init__(
        self, process_queue: ProcessQueue[Message], lock: QueueLock, table: TagTable[Caller], mode: InOrderMode
    ) -> None:
        self.queue: MessageQueue = process_queue.message_queue
        self._process_queue, self._lock, self._mode, self._context = process_queue, lock, mode, mode.context
        self.lease: Lease = lock.lease
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing more may start: the lock is lost. With an exception when the delivery has failed."""
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._keys = mode.keys
        self.has_keys: bool = mode.keys is not None
        self.record_of: Callable[[int, int], bytes] | None = mode.recorder(process_queue)
        self.retries: RetriesInPlace = RetriesInPlace(process_queue, self._ended, mode.context)
        self._quarantine = mode.quarantine(process_queue)
        self._uncommitted = Uncommitted(process_queue)
        """Of handlers that commit by hand."""
        self._takers: dict[int, Taker] = {}
        """By the identity of their callers."""
        self._table = table.with_each(self._taker)
        self._lines: dict[Hashable, LineRun] = {}
        self._spare: list[LineRun] = []
        """Lines of keys that have no message any more, to be used again."""
        self._uncertain: list[tuple[LineRun, Taker, Any, object, bool]] = []
        """Calls that ended when the lease was over: what they returned or raised."""
        self._asking: asyncio.Task[None] | None = None
        """Waits until the lock is certain again."""
        self._is_abandoned = False
        """Cancellations of running calls are ours."""
        self._started_to = -1
        """No started message lies above it, except those of lines that are walked."""
        self._finishing: asyncio.TimerHandle | None = None
        """After the end: when no more of the messages below the highest started one are started."""
        self._drained = asyncio.Event()
        self._is_tidied_soon = False

    def __repr__(self) -> str:
        return f"<InOrderDelivery {self._process_queue}: {len(self._lines)} lines>"

    @property
    def is_void(self) -> bool:
        """Nothing of it is acknowledged any more."""
        return self._is_abandoned or self._process_queue.closed

    def lines(self) -> list[LineRun]:
        """Those that have messages, or a message that is not done."""
        return list(self._lines.values())

    # From a message to a line.

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        if self._keys is None and None not in (takers := self._table.takers(messages)):
            self._add_to_queue(zip(takers, messages, strict=True))
            return
        for taker, share in self._table.runs(messages) if self._keys is None else self._table.split(messages):
            if taker is None:
                self._add_unmatched(share)
            else:
                self._add(taker, share)

    def _add_unmatched(self, messages: Sequence[Message]) -> None:
        for caller, share in self._mode.unmatched(self.queue.topic, messages):
            if caller is None:
                self._process_queue.finish_all(share)
                self._context.member.stats.count_unmatched(self.queue.topic, len(share))
            else:
                self._add(self._taker(caller), share)

    def _add(self, taker: Taker, messages: Sequence[Message]) -> None:
        if self._keys is None:
            self._add_to_queue((taker, message) for message in messages)
            return
        lines, key_of, started = self._lines, self._keys.of(taker.handler), list[LineRun]()
        starts_at_once, runs_here = self._starts_at_once(taker), taker.handler.runs_here
        for message in messages:
            try:
                key = taker, key_of(message)
                line = lines.get(key) or self._new_line(key)
                if not runs_here:
                    line.record_of = None
            except Exception as error:
                place = f"order_by= failed, so that its place is not known: {type(error).__name__}: "
                self._refuse(taker, message, Failure("OrderBy", place + text_of(error, "")))
                continue
            line.items.append((taker, message))
            if starts_at_once and not line.is_at_work:
                line.most, line.is_at_work = STINT, True
                started.append(line)
            elif not line.is_at_work:
                self._start(line)
        if started:
            taker.caller.workers.submit(taker.caller, started)

    def _add_to_queue(self, pairs: Iterable[Any]) -> None:
        line = self._lines.get(None) or self._new_line(None)
        line.items.extend(pairs)
        self._start(line)

    def _starts_at_once(self, taker: Taker) -> bool:
        """Whether nothing is to be looked at before one of its messages starts."""
        is_plain = not (self._quarantine or self.retries.earlier) and taker.caller.batch is None
        return is_plain and not self._ended.done() and self._loop.time() < self.lease.certain_until

    def _new_line(self, key: Hashable) -> LineRun:
        line = self._spare.pop() if self._spare else LineRun(self, key)
        self._lines[key], line.key, line.withheld = line, key, self._ended.done()
        return line

    def _taker(self, caller: Caller) -> Taker:
        known = self._takers.get(id(caller))
        if known is None:
            queue, handler, prompt = self._process_queue, caller.handler, self._context.prompt
            acks: ByOffset
            if handler.decisions is None:
                acks = Prompting(queue, handler, prompt)
            else:
                acks = ManualCommits(queue, caller, handler.decisions, self._uncommitted, prompt)
            known = self._takers[id(caller)] = Taker(caller, acks)
        return known

    def _refuse(self, taker: Taker, message: Message, failure: Failure) -> None:
        """Send it to the dead letters without a call."""
        line = self._new_line(object())
        line.items.append((taker, message))
        line.sees_to_first = True
        self._do(line, self._store(line, taker.handler, message, failure))

    async def _store(self, line: LineRun, handler: Handler, message: Message, failure: Failure) -> None:
        if await self.retries.store_dead_letter(handler, message, failure):
            line.items.popleft()
            self._go_on(line)

    # From a line to workers.

    def _start(self, line: LineRun) -> None:
        """Have its first message started, if it may."""
        if line.is_at_work or line.withheld or not line.items:
            return
        taker = line.items[0][0]
        if self._quarantine or self.retries.earlier or taker.caller.batch is not None:
            line.most = 1
            if not self._is_prepared(line, taker):
                return
        else:
            line.most = STINT
        if self._loop.time() >= self.lease.certain_until:
            self._ask()
            return
        line.is_at_work = True
        self._mode.callers.submit(line)

    def _is_prepared(self, line: LineRun, taker: Taker) -> bool:
        """Whether its first message may start now; otherwise it is seen to, and the line goes on after that."""
        quarantined = self._quarantine if self._quarantine and taker.handler.runs_here else ()
        if taker.caller.batch is not None and not self._has_formed(
            line, taker, 1 if quarantined else taker.caller.batch
        ):
            return False
        item, earlier = line.items[0][1], self.retries.earlier
        if last_of(item).offset <= line.checked or not any(
            one.offset in earlier or one in quarantined for one in messages_of(item)
        ):
            return True
        line.sees_to_first = True
        self._do(line, self._check(line, taker, item))
        return False

    def _has_formed(self, line: LineRun, taker: Taker, most: int) -> bool:
        """Put the messages in front into one batch that follow directly for the same handler, perhaps after a wait."""
        items = line.items
        if not isinstance(items[0][1], Message):
            if len(items[0][1]) > most:
                self._put_back(line, taker, items.popleft()[1])
            return True
        count = 0
        while count < min(most, len(items)) and items[count][0] is taker and isinstance(items[count][1], Message):
            count += 1
        now = self._loop.time()
        if line.formed_by is None:
            line.formed_by = now + taker.handler.subscription.batch_wait
        if count < most and count == len(items) and now < line.formed_by:
            if line.timer is None:
                line.timer = self._loop.call_at(line.formed_by, self._is_late, line)
            return False
        self._forget_timer(line)
        batch = [items.popleft()[1] for _ in range(count)]
        items.appendleft((taker, batch))
        return True

    def _is_late(self, line: LineRun) -> None:
        line.timer = None
        self._start(line)

    def _forget_timer(self, line: LineRun) -> None:
        line.formed_by = None
        if line.timer is not None:
            line.timer.cancel()
            line.timer = None

    async def _check(self, line: LineRun, taker: Taker, item: Any) -> None:
        """Store what has no attempt left as a dead letter, and wait for the turn of a quarantined message."""
        line.checked, kept = last_of(item).offset, list[Message]()
        for message in messages_of(item):
            if not await self._is_dead(line, taker.handler, message):
                kept.append(message)
            if self._ended.done():
                return
        if len(kept) < len(messages_of(item)):
            line.items.popleft()
            if kept:
                line.items.appendleft((taker, kept))
        first, quarantine = line.in_turn, self._quarantine
        if (
            kept
            and first is not None
            and quarantine is not None
            and not await quarantine.turn(first, taker.handler, self._ended)
        ):
            return
        self._go_on(line)

    async def _is_dead(self, line: LineRun, handler: Handler, message: Message) -> bool:
        """Whether it has no attempt left; then it is stored as a dead letter, unless the delivery ended before."""
        retries, quarantine = self.retries, self._quarantine if handler.runs_here else None
        if quarantine and message in quarantine:
            if message.offset not in retries.earlier:
                if (dead := quarantine.dead_letter_of(message, handler)) is None:
                    line.in_turn = message
                    retries.count_from_here(message)
                    return False
                if await retries.store_dead_letter(handler, message, Failure("DeadLetter", dead.reason, dead=True)):
                    quarantine.settled(message.offset)
                return True
            line.in_turn = message
        if not (retries.earlier and retries.is_exhausted(handler, message)):
            return False
        reason = f"the lock of its queue was lost during the last of {message.reconsume_times} attempts"
        await retries.store_dead_letter(handler, message, Failure("LockLost", reason))
        line.in_turn = None
        return True

    def waits_for(self, caller: Caller) -> None:
        """Its one line waits until this handler has a free call."""
        reason = f"waits for a free call of handler {caller.handler.name} (concurrency {caller.most})"
        self._context.member.stalls.blocked(self.queue, reason, patience=_CALL_PATIENCE, place=OF_CALL)

    def waits_no_more(self) -> None:
        """Its one line has a free call."""
        self._context.member.stalls.moving(self.queue, place=OF_CALL)

    # What workers report.

    def returned(self, line: LineRun) -> None:
        """Workers have given it back: what they started of it is done."""
        self._note_started(line)
        if line.in_turn is not None and (not line.items or first_of(line.items[0][1]) is not line.in_turn):
            self._turn_over(line)
        self._go_on(line)

    def ended_call(self, line: LineRun, taker: Taker, item: Any, result: object, raised: bool) -> None:
        """A call needs a judgement: it failed, returned something, or ended when the lease was over."""
        self._turn_over(line)
        self._note_started(line)
        line.rests = True
        is_certain = self._loop.time() < self.lease.certain_until
        if is_certain and not self.is_void:
            self._see_to(line, taker, item, result, raised)
        elif is_certain or self._ended.done():
            # It rests: the queue's next owner gets it again.
            if not is_certain and self._process_queue.closed:
                self._count_attempts(item)
            self._check_drained()
        else:
            self._uncertain.append((line, taker, item, result, raised))
            self._ask()

    def _see_to(self, line: LineRun, taker: Taker, item: Any, result: object, raised: bool) -> None:
        failures = taker.acks.settle(item, result, raised)
        if not failures:
            self._go_on(line)
            return
        step = self.retries.step_after(taker.handler, failures)
        self._do(line, self._again(line, taker, step, rolls_back=taker.acks.rolled_back))

    async def _again(self, line: LineRun, taker: Taker, step: AfterFailure, *, rolls_back: bool) -> None:
        """Dead letters are stored; after a delay the others are at the front of their line again."""
        retried = await self.retries.take(taker.handler, step)
        if retried is None or self._ended.done():
            self._check_drained()  # it rests: the queue's next owner gets it again
            return
        handled = [*self._uncommitted.take(), (taker.caller, retried)] if rolls_back else [(taker.caller, retried)]
        for caller, messages in reversed(handled):
            self._put_back(line, self._taker(caller), messages)
        self._go_on(line)

    def _put_back(self, line: LineRun, taker: Taker, messages: Sequence[Message]) -> None:
        """They come next; those of a batch as batches, for which nothing is waited any more."""
        most = taker.caller.batch
        line.items.extendleft((taker, item) for item in reversed(messages if most is None else cut(messages, most)))

    def _go_on(self, line: LineRun) -> None:
        """Its next message may start; a line of a key that has none is forgotten."""
        line.is_at_work = line.rests = line.sees_to_first = False
        if self._keys is None:
            self._tidy()
        elif not self._is_tidied_soon:
            self._is_tidied_soon = True
            self._loop.call_soon(self._tidy)
        if line.items:
            self._start(line)
        elif self._keys is not None and not line.is_at_work:
            self._forget(line)
        if self._ended.done():
            self._check_drained()

    def is_through(self, line: LineRun) -> None:
        """Workers have given it back, and it has no more messages."""
        if self._keys is None:
            self.returned(line)
            return
        line.is_at_work = False
        if not self._is_tidied_soon:
            self._is_tidied_soon = True
            self._loop.call_soon(self._tidy)
        self._note_started(line)
        self._forget(line)
        if self._ended.done():
            self._check_drained()

    def _forget(self, line: LineRun) -> None:
        is_ours = self._lines.pop(line.key, None) is line and line.record_of is self.record_of
        if is_ours and len(self._spare) < _SPARE:
            self._spare.append(line)

    def _tidy(self) -> None:
        """Messages were finished: once for all that happens in this turn of the loop."""
        self._is_tidied_soon = False
        offset = self._process_queue.commit_offset
        if self._quarantine:
            self._quarantine.settled_below(offset)
        if not self._ended.done():  # otherwise a message may be left that is not a dead letter yet
            self.retries.done_below(offset)
        self._context.prompt(self._process_queue)

    def _note_started(self, line: LineRun) -> None:
        if line.item is not None:
            self._started_to = max(self._started_to, last_of(line.item).offset)
            line.item = None

    def _turn_over(self, line: LineRun) -> None:
        """The quarantined message was called, and the process lives."""
        if line.in_turn is not None and self._quarantine is not None:
            self._quarantine.ended(line.in_turn)
        line.in_turn = None

    def _do(self, line: LineRun, work: Any) -> None:
        """See to the first message of a line; an error of ours ends the session."""
        line.is_at_work = line.rests = True
        task = self._mode.tasks.start(work, f"in order {self.queue}")
        task.add_done_callback(self._is_done)

    def _is_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """An error of ours: the session cannot go on, and its owner begins another one."""
        if not self.over.done():
            self.over.set_exception(error)
            self.over.exception()  # reported already, by the owner of the task
        self.end(start_no_more=True)

    # The lease.

    def _ask(self) -> None:
        """The lease is over: wait until the lock is certain again, or lost."""
        if self._asking is None and not self._ended.done():
            self._asking = self._mode.tasks.start(self._is_usable(), f"lock {self.queue}")

    async def _is_usable(self) -> None:
        is_usable = await self._lock.usable()
        self._asking = None
        if self._ended.done():
            return
        uncertain, self._uncertain = self._uncertain, []
        for line, taker, item, result, raised in uncertain:
            if is_usable:
                self.ended_call(line, taker, item, result, raised)
                continue
            self._count_attempts(item)
        if not is_usable:
            self.over.set_result(None)
            self.end(start_no_more=True)
            return
        for line in list(self._lines.values()):
            self._start(line)

    def _count_attempts(self, item: Any) -> None:
        """Another member may have had the queue during the call. The attempt counts all the same.

        A handler that blocks the loop for longer than its lock lives would block it for ever.
        """
        for message in messages_of(item):
            self.retries.count_attempt(message)

    # The end.

    def end(self, *, start_no_more: bool = False) -> None:
        """Withdraw what was not started, except what lies below a started message; it gets a second to start.

        So the committed offset passes all that was started, and the queue's next owner repeats nothing. Running calls
        go on. Messages that rest after a failure are not waited for.
        """
        if self._ended.done():
            if start_no_more:
                self._finish_no_more()
            return
        lines = list(self._lines.values())
        for line in lines:
            line.withheld = True
            self._forget_timer(line)
        if self._process_queue.closed:
            for _, _, item, _, _ in self._uncertain:
                self._count_attempts(item)
        self._uncertain.clear()
        if self._keys is None:
            self.waits_no_more()
        if self._quarantine is not None:
            self._quarantine.give_up()
        # Not before: nothing is drained while it is open whether messages below a started one start still.
        self._ended.set_result(None)
        if self._asking is not None:
            self._asking.cancel()
        is_paused = self._context.member.pauses.is_paused(self.queue.topic)
        if not (is_paused or start_no_more or self.is_void) and self._loop.time() < self.lease.certain_until:
            self._finish(lines)
        self._check_drained()

    def _finish(self, lines: Sequence[LineRun]) -> None:
        for line in lines:
            started = line.items[0][1] if line.sees_to_first and line.items else line.item
            if started is not None:
                self._started_to = max(self._started_to, last_of(started).offset)
        highest, dropped = self._started_to, False
        for line in lines:
            # From the end: a thread may take the first ones meanwhile.
            with contextlib.suppress(IndexError):
                while last_of(line.items[-1][1]).offset > highest:
                    line.items.pop()
                    dropped = True
        if dropped:
            self._process_queue.withdraw(highest + 1)
        self._finishing = self._loop.call_later(RUN_ON, self._finish_no_more)
        for line in lines:
            line.withheld = False
            self._start(line)

    def _finish_no_more(self) -> None:
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None
        for line in self._lines.values():
            line.withheld = True
        self._check_drained()

    def _check_drained(self) -> None:
        """After an end: nothing runs any more, and nothing is about to start."""
        if not self._ended.done() or self._drained.is_set():
            return
        lines = self._lines.values()
        if any(line.is_walked for line in lines) or (self._finishing and any(self._may_start(line) for line in lines)):
            return
        self._drained.set()
        self.retries.close()
        for line in lines:
            line.items.clear()  # workers may have the line still, perhaps behind one that is paused
        self._finish_no_more()

    def _may_start(self, line: LineRun) -> bool:
        return bool(line.items) and not line.rests

    async def drained(self) -> None:
        """Returns when the running calls have ended. Call `end` first."""
        self._check_drained()
        await self._drained.wait()

    async def abandon(self) -> bool:
        """Cancel the running calls; whether they have ended. A thread goes on, and so may a handler."""
        self._mode.callers.collect()  # what was done before counts
        self._give_up()
        await self._mode.callers.cancel(lambda run: isinstance(run, LineRun) and run.delivery is self)
        return not any(line.is_walked for line in self._lines.values())

    def discard(self) -> None:
        """The session is void: acknowledge nothing of it any more."""
        self._process_queue.close()
        self._give_up()

    def _give_up(self) -> None:
        self._is_abandoned = True
        self.end()
        self.end(start_no_more=True)
