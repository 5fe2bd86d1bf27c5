"""The orderly and the keyed mode: messages one after the other, under a lock that a broker holds for the group.

What follows one another lies in one line: all messages of a queue, or those of one key for one handler. Lines go side
by side. A line is given to workers as long as the lease of the lock is certain: that is compared with the clock before
each start and after each call. A failed message rests at the front of its line until it is tried again.

Most keys have one message at a time. Such heads of their keys share a run, and a key gets a line of its own when
another message of it comes before its head is done, or when its head is to be looked at closely.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler, cut, first_of, last_of, messages_of
from rocketapp.consumer.modes.by_offset import ByOffset, ManualCommits, Uncommitted
from rocketapp.consumer.modes.delivery import Mode, ModeContext, QueueLock
from rocketapp.consumer.modes.lines import HeadsRun, KeysOfHandler, LineRun, OrderKeys
from rocketapp.consumer.modes.outcomes import text_of
from rocketapp.consumer.modes.retries_in_place import AfterFailure, RetriesInPlace
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import STINT, Pair, Taker
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import KEYED
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.handover import RUN_ON
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.state.tag_table import TagTable
from rocketapp.wire.record import Message

_WHOLE_QUEUE = 0
"""The number of the line of an orderly queue."""


class InOrderMode(Mode):
    """Calls the handlers of one topic that want their messages in order."""

    run_on: float | None = None

    def __init__(self, topic: ConsumedTopic, context: ModeContext) -> None:
        super().__init__(context)
        self.keys: OrderKeys | None = OrderKeys(context.member) if topic.kind is KEYED else None
        """None: all messages of a queue are in one line."""
        self.needs_lock: bool = not context.member.broadcast
        self._table = self.callers.table(topic)

    def open(
        self, process_queue: ProcessQueue[Message], lock: QueueLock | None, _flow: object = None
    ) -> InOrderDelivery:
        """The delivery of a new session under this lock."""
        return InOrderDelivery(process_queue, lock, self._table, self)

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """No span where the lowest unfinished message is the only one that runs."""
        limits = super().limits(config)
        return limits if self.keys is not None else replace(limits, max_span=None)


class InOrderDelivery:
    """The messages of one session on their way, one at a time in each line."""

    def __init__(
        self, process_queue: ProcessQueue[Message], lock: QueueLock | None, table: TagTable[Caller], mode: InOrderMode
    ) -> None:
        self.queue: MessageQueue = process_queue.message_queue
        self._process_queue, self._lock, self._mode, self._context = process_queue, lock, mode, mode.context
        self.lease: Lease = mode.lease_of(lock)
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
        self._lines: dict[int, LineRun] = {}
        """By number: that of a key is the offset of its head, or negative when its head is in the line."""
        self._heads: dict[HeadsRun, None] = {}
        self._keys_of: dict[int, KeysOfHandler] = {}
        """By the identity of takers."""
        self._table = table.with_each(self._taker)
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

    def runs(self) -> list[LineRun | HeadsRun]:
        """Those that have messages, or a message that is not done."""
        return [*self._lines.values(), *self._heads]

    # From a message to a line.

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        takers = self._table.takers(messages)
        pairs = self._forwarded(takers, messages) if None in takers else zip(takers, messages, strict=True)
        if self._keys is None:
            line = self._lines.get(_WHOLE_QUEUE) or self._new_line(_WHOLE_QUEUE)
            line.items.extend(pairs)  # type: ignore[arg-type]
            self._start(line)
        else:
            self._add_by_key(pairs)

    def _forwarded(self, takers: Sequence[Taker | None], messages: Sequence[Message]) -> list[Pair]:
        """What no handler here takes goes to another member, or is done."""
        unmatched = [message for taker, message in zip(takers, messages, strict=True) if taker is None]
        others: dict[int, Taker] = {}
        for caller, share in self._mode.forwarders(self._process_queue, self.queue.topic, unmatched):
            others |= dict.fromkeys((message.offset for message in share), self._taker(caller))
        found = ((taker or others.get(one.offset), one) for taker, one in zip(takers, messages, strict=True))
        return [(taker, message) for taker, message in found if taker is not None]

    def _add_by_key(self, pairs: Iterable[Any]) -> None:
        heads: dict[int, Pair] = {}
        lines: dict[int | None, LineRun] = self._lines  # type: ignore[assignment]
        is_unfinished, starts, last = self._process_queue.is_unfinished, self._starts_at_once(), None
        for taker, message in pairs:
            if taker is not last:
                last, keys = taker, self._keys_in(taker)
                key_of, places, is_head = keys.key_of, keys.places, starts and keys.may_share
            try:
                key = key_of(message)
                place = places.get(key)
            except Exception as error:
                problem = "order_by= failed, so that its place is not known: "
                text = f"{problem}{type(error).__name__}: {text_of(error, '')}"
                self._refuse(taker, message, Failure("OrderBy", text))
                continue
            line = lines.get(place)
            if line is None:
                if place is not None and is_unfinished(place):
                    line = self._line_behind(place, heads)
                elif is_head:
                    places[key] = message.offset
                    heads[message.offset] = taker, message
                    continue
                else:
                    places[key] = ~message.offset
                    line = self._new_line(~message.offset)
                if not taker.handler.runs_here:
                    line.record_of = None
            line.items.append((taker, message))
            if not line.is_at_work:
                self._start(line)
        if heads:
            self._start_heads(list(heads.values()))

    def _keys_in(self, taker: Taker) -> KeysOfHandler:
        assert self._keys is not None
        keys = self._keys_of.get(id(taker))
        if keys is None:
            keys = self._keys_of[id(taker)] = self._keys.of(taker)
        keys.forget(self._lines, self._process_queue)
        return keys

    def _starts_at_once(self) -> bool:
        """Whether nothing is to be looked at before a message starts."""
        is_plain = not (self._quarantine or self.retries.earlier or self._ended.done())
        return is_plain and self._loop.time() < self.lease.certain_until

    def _new_line(self, number: int) -> LineRun:
        line = self._lines[number] = LineRun(self, number)
        line.starts_nothing = self._ended.done()
        return line

    def _line_behind(self, head: int, heads: dict[int, Pair]) -> LineRun:
        """Another message of the key comes before its head is done, which may not even be with workers."""
        line = self._new_line(head)
        if head in heads:
            line.items.append(heads.pop(head))
        else:
            line.is_at_work = True
            self._process_queue.when_finished[head] = partial(self._go_on, line)
        return line

    def _start_heads(self, pairs: list[Pair]) -> None:
        for workers in {id(taker.goes_with) for taker, _ in pairs}:
            share = [pair for pair in pairs if id(pair[0].goes_with) == workers]
            run = HeadsRun(self, share, is_of_one=len({id(taker) for taker, _ in share}) == 1)
            self._heads[run] = None
            self._mode.callers.submit(run)

    def split(self, run: HeadsRun) -> None:
        """One of its handlers has no free call: from now on each has a run of its own, unless nothing may start."""
        if run.starts_nothing:
            return
        left, run.last_offset = run.withdraw()
        shares: dict[int, list[Pair]] = {}
        for pair in left:
            shares.setdefault(id(pair[0]), []).append(pair)
        for share in shares.values():
            self._start_heads(share)
        self.walked(run)

    def _taker(self, caller: Caller) -> Taker:
        known = self._takers.get(id(caller))
        if known is None:
            queue, handler, prompt = self._process_queue, caller.handler, self._context.prompt
            acks: ByOffset
            if handler.decisions is not None:
                acks = ManualCommits(queue, caller, handler.decisions, self._uncommitted, prompt)
            else:
                acks = ByOffset(queue, handler, prompt)
            known = self._takers[id(caller)] = Taker(caller, acks)
        return known

    def _refuse(self, taker: Taker, message: Message, failure: Failure) -> None:
        """Send it to the dead letters without a call."""
        line = self._new_line(~message.offset)
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
        if line.is_at_work or line.starts_nothing or not line.items:
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
                    quarantine.lift(message.offset)
                return True
            line.in_turn = message
        if not (retries.earlier and retries.is_exhausted(handler, message)):
            return False
        reason = f"the lock of its queue was lost during the last of {message.reconsume_times} attempts"
        await retries.store_dead_letter(handler, message, Failure("LockLost", reason))
        line.in_turn = None
        return True

    # What workers report.

    def returned(self, line: LineRun) -> None:
        """Workers have given it back: what they started of it is done."""
        self._note_started(line)
        if line.in_turn is not None and (not line.items or first_of(line.items[0][1]) is not line.in_turn):
            self._turn_over(line)
        self._go_on(line)

    def ended_head(self, taker: Taker, item: Any, result: object, raised: bool) -> None:
        """The call for the head of a key did not just return: from now on its key has a line of its own."""
        self._process_queue.when_finished.pop(item.offset, None)
        line = self._lines.get(item.offset) or self._new_line(item.offset)
        line.is_at_work = True
        self.ended_call(line, taker, item, result, raised)

    def walked(self, run: HeadsRun) -> None:
        """A worker has given it back, perhaps while others go on with it."""
        if run.items:
            if run.starts_nothing or self._loop.time() >= self.lease.certain_until:
                run.starts_nothing = True
                self._ask()
            elif not run.is_queued:
                self._mode.callers.submit(run)
        elif not run.walkers and run in self._heads:
            del self._heads[run]
            self._started_to = max(self._started_to, run.last_offset)
        self._tidy_soon()
        if self._ended.done():
            self._check_drained()

    def ended_call(self, line: LineRun, taker: Taker, item: Any, result: object, raised: bool) -> None:
        """A call failed, returned something, or ended when the lease was over."""
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
        failures = taker.acks.acknowledge(item, result, raised)
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
        else:
            self._tidy_soon()
        if line.items:
            self._start(line)
        elif self._keys is not None and not line.is_at_work:
            self._lines.pop(line.number, None)
        if self._ended.done():
            self._check_drained()

    def _tidy_soon(self) -> None:
        if not self._is_tidied_soon:
            self._is_tidied_soon = True
            self._loop.call_soon(self._tidy)

    def _tidy(self) -> None:
        """Messages were finished: once for all that happens in this turn of the loop."""
        self._is_tidied_soon = False
        offset = self._process_queue.commit_offset
        if self._quarantine:
            self._quarantine.lift_below(offset)
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
        task = self._mode.callers.tasks.start(work, f"in order {self.queue}")
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
            self._asking = self._mode.callers.tasks.start(self._is_usable(), f"lock {self.queue}")

    async def _is_usable(self) -> None:
        is_usable = self._lock is None or await self._lock.usable()
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
        for run in self._heads:
            self._start_again(run)

    def _start_again(self, run: HeadsRun) -> None:
        run.starts_nothing = False
        if run.items:
            self._mode.callers.submit(run)

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
        for line in self._lines.values():
            line.starts_nothing = True
            self._forget_timer(line)
        for run in self._heads:
            run.starts_nothing = True
        if self._process_queue.closed:
            for _, _, item, _, _ in self._uncertain:
                self._count_attempts(item)
        self._uncertain.clear()
        if self._quarantine is not None:
            self._quarantine.give_up()
        # Not before: nothing is drained while it is open whether messages below a started one start still.
        self._ended.set_result(None)
        if self._asking is not None:
            self._asking.cancel()
        is_paused = self._context.member.pauses.is_paused(self.queue.topic)
        if not (is_paused or start_no_more or self.is_void) and self._loop.time() < self.lease.certain_until:
            self._finish()
        self._check_drained()

    def _finish(self) -> None:
        lines = list(self._lines.values())
        started = [line.items[0][1] if line.sees_to_first and line.items else line.item for line in lines]
        offsets = [last_of(item).offset for item in started if item is not None]
        offsets += (run.started_to() for run in self._heads)
        highest = self._started_to = max(self._started_to, *offsets, -1)
        dropped = False
        for run in self.runs():
            # From the end: a thread may take the first ones meanwhile.
            with contextlib.suppress(IndexError):
                while last_of(run.items[-1][1]).offset > highest:
                    run.items.pop()
                    dropped = True
        if dropped:
            self._process_queue.withdraw(highest + 1)
        self._finishing = self._loop.call_later(RUN_ON, self._finish_no_more)
        for line in lines:
            line.starts_nothing = False
            self._start(line)
        for heads in self._heads:
            self._start_again(heads)

    def _finish_no_more(self) -> None:
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None
        for run in self.runs():
            run.starts_nothing = True
        self._check_drained()

    def _check_drained(self) -> None:
        """After an end: nothing runs any more, and nothing is about to start."""
        if not self._ended.done() or self._drained.is_set():
            return
        runs = self.runs()
        if any(run.walkers for run in runs) or (self._finishing and any(run.items and not run.rests for run in runs)):
            return
        self._drained.set()
        self.retries.close()
        for run in runs:
            run.items.clear()  # workers may have the line still, perhaps behind one that is paused
        self._finish_no_more()

    async def drained(self) -> None:
        """Returns when the running calls have ended. Call `end` first."""
        self._check_drained()
        await self._drained.wait()

    async def abandon(self) -> bool:
        """Cancel the running calls; whether they have ended. A thread goes on, and so may a handler."""
        self._mode.callers.collect()  # what was done before counts
        self._give_up()
        await self._mode.callers.cancel(lambda run: run.lease is self.lease)
        return not any(run.walkers for run in self.runs())

    def discard(self) -> None:
        """The session is void: acknowledge nothing of it any more."""
        self._process_queue.close()
        self._give_up()

    def _give_up(self) -> None:
        self._is_abandoned = True
        self.end()
        self.end(start_no_more=True)
