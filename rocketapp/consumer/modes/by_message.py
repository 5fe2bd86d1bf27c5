"""Handlers that are called with messages: concurrent, orderly, keyed and popped topics, in one delivery.

A message has a place. In order it follows the others of its queue, or of its key, in a line; without order it is free.
Free messages start independently of one another: they share runs. A line is given to workers as long as the lease of
its lock is certain, and a message that failed rests at its front until it is tried again. Without a lock the lease does
not end, and what failed is sent back, or parked.

Most keys have one message at a time. Such heads of their keys are free, and a key gets a line of its own when another
message of it comes before its head is done. So does a message that is quarantined, and has to wait for its turn.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.blocked import CALL_PATIENCE, Text
from rocketapp.consumer.handler import ConsumedTopic, Item, cut, first_of, last_of, messages_of, of_retries
from rocketapp.consumer.modes.by_offset import ByOffset, FailedMessages, ManualCommits, SentBack, Uncommitted
from rocketapp.consumer.modes.delivery import Mode, ModeContext
from rocketapp.consumer.modes.lines import HandlerKeys, LineRun, forget, no_place
from rocketapp.consumer.retry.attempts import RetriesInPlace, Step
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import MESSAGES_PER_ROUND, FreeRun, Pair, Taker
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import DLQ_PREFIX, RETRY_PREFIX
from rocketapp.model.subscription import KEYED
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.handover import RUN_ON
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.state.tag_table import TagTable, split
from rocketapp.tasks import until
from rocketapp.wire.record import Message

_WHOLE_QUEUE = 0
"""Number of the line of an orderly queue."""


class MessageMode(Mode):
    """Calls the handlers of one topic, in order or popped; or of a whole group, concurrently."""

    def __init__(self, topics: Iterable[ConsumedTopic], context: ModeContext, *, in_order: bool = False) -> None:
        """Concurrent: all topics of the group are here: messages that come back through the retry topic have lost
        their order anyway, and may come from a time when a topic was consumed otherwise.
        """
        super().__init__(context)
        topics = list(topics)
        self.in_order: bool = in_order
        self.has_keys: bool = in_order and topics[0].kind is KEYED
        """Otherwise all messages of a queue are in one line, or none is."""
        self.keyless: Counter[str] = Counter()
        """By handler its first messages that lack the property which names their key."""
        self.needs_lock: bool = in_order and not context.member.broadcast
        self.run_on: float | None = None if in_order else RUN_ON
        self.takers: dict[str, list[tuple[Caller, frozenset[str]]]] = {
            topic.topic: [
                (self.callers.one(one if in_order else of_retries(one)), one.subscription.tags)
                for one in topic.handlers
            ]
            for topic in topics
        }
        """By topic who is called, and for which tags."""

    def open(self, process_queue: ProcessQueue[Message], failures: FailedMessages | None = None) -> MessageDelivery:
        """The delivery of a new session. `failures`: who sees to failed messages without order, not the redelivery."""
        return MessageDelivery(process_queue, self, failures or self.context.redelivery)

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """No span where the lowest unfinished message is the only one that runs."""
        limits = super().limits(config)
        return replace(limits, max_span=None) if self.in_order and not self.has_keys else limits


class MessageDelivery:
    """The messages of one session on their way to their handlers."""

    def __init__(self, process_queue: ProcessQueue[Message], mode: MessageMode, failures: FailedMessages) -> None:
        self.queue: MessageQueue = process_queue.message_queue
        self._process_queue, self._mode, self._failures = process_queue, mode, failures
        self.check: Callable[[Any], Any] | None = None
        """What of an item may still start, or None if nothing may."""
        self._context, self._callers = mode.context, mode.callers
        self.lease: Lease = process_queue.lease
        self._loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self._loop.create_future()
        """Done when nothing more may start: the lock is lost. With an exception when the delivery has failed."""
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self.has_keys: bool = mode.has_keys
        self._is_in_one_line = mode.in_order and not self.has_keys
        self.record_of: Callable[[int, int], bytes] | None = mode.recorder(process_queue)
        in_place = RetriesInPlace(process_queue, self._ended, mode.context.attempts) if mode.in_order else None
        self.retries: RetriesInPlace | None = in_place
        """None: what failed is sent back, or parked."""
        self._earlier: Mapping[int, object] = in_place.earlier if in_place is not None else {}
        self._quarantine = mode.quarantine(process_queue)
        self._uncommitted = Uncommitted(process_queue, {} if in_place is None else in_place.failed)
        """Of handlers that commit by hand."""
        self._takers: dict[int, Taker] = {}
        """By the identity of their callers."""
        self._tables: dict[str, TagTable[Taker]] = {}
        self._lines: dict[int, LineRun] = {}
        """By number: a key's head by its offset, negative when that is in the line; forming batches by taker."""
        self._free: dict[FreeRun, None] = {}
        self._keys_of: dict[int, HandlerKeys] = {}
        """By the identity of takers."""
        self._places: list[tuple[Any, dict[Hashable, int]]] = []
        """The keys by each `order_by` of the handlers: those that have the same one share lines."""
        self._uncertain: list[tuple[LineRun, Taker, Any, object, bool]] = []
        """Calls that ended when the lease was over: what they returned or raised."""
        self._awaits_lease = False
        """Nothing starts before the lease is certain again."""
        self._is_abandoned = False
        """Cancellations of running calls are ours."""
        self._seen_to = 0
        """Tasks that see to messages of lines; each ends soon after the end."""
        self._started_to = process_queue.end_offset - 1
        """No started message, nor dead letter without a call, lies above it, except those of lines and of free runs."""
        self._finishing: asyncio.TimerHandle | None = None
        """After the end: when no more of the messages below the highest started one are started."""
        self._left = 0
        """After the end: free messages that start no more."""
        self._table_of(self.queue.topic)
        self._is_tidied_soon = False
        self._is_retried = self.queue.topic.startswith((RETRY_PREFIX, DLQ_PREFIX))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._process_queue}: {len(self._lines)} lines, {len(self._free)} free runs>"

    @property
    def is_void(self) -> bool:
        """Nothing of it is acknowledged any more."""
        return self._is_abandoned or self._process_queue.closed

    def runs(self) -> list[LineRun | FreeRun]:
        """Those that have messages, or a message that is not done."""
        return [*self._lines.values(), *self._free]

    # From a message to its place.

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        if not self._is_retried:
            self._give(self.queue.topic, messages)
            return
        by_topic: dict[str, list[Message]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message)
        for topic, share in by_topic.items():
            self._give(topic, share)

    def _give(self, topic: str, messages: Sequence[Message]) -> None:
        takers: Sequence[Any] = (self._tables.get(topic) or self._table_of(topic)).takers(messages)
        pairs: Any = zip(takers, messages, strict=True)
        is_of_one = takers.count(takers[0]) == len(takers) if takers and takers[0] is not None else False
        if not is_of_one and None in takers:
            pairs = self._forwarded(topic, pairs)
        if self.retries is None:
            self._add_free(list(pairs), is_of_one=is_of_one)
        elif self.has_keys:
            self._add_by_key(pairs)
        else:
            line = self._lines.get(_WHOLE_QUEUE) or self._new_line(_WHOLE_QUEUE)
            line.items.extend(pairs)
            self.start(line)

    def _table_of(self, topic: str) -> TagTable[Taker]:
        takers = self._mode.takers.get(topic, ())
        table = self._tables[topic] = TagTable((self._taker(caller), tags) for caller, tags in takers)
        return table

    def _forwarded(self, topic: str, pairs: Iterable[tuple[Taker | None, Message]]) -> list[Pair]:
        """What no handler here takes goes to another member that may want it, or is done."""
        found, unmatched = list[Pair](), list[Message]()
        for taker, message in pairs:
            if taker is not None:
                found.append((taker, message))
            elif (caller := self._context.forwarding.caller(topic, message)) is not None:
                found.append((self._taker(caller), message))
            else:
                unmatched.append(message)
        if unmatched:
            self._process_queue.finish_all(unmatched)
            self._context.member.stats.unmatched[topic] += len(unmatched)
        return found

    def _add_free(self, pairs: Sequence[Pair], *, is_of_one: bool) -> None:
        if not pairs:
            return
        workers = pairs[0][0].caller.workers
        is_plain = pairs[0][0].caller.goes_with is workers and not self._looks_closer(pairs)
        if is_plain and (is_of_one or all(taker.caller.goes_with is workers for taker, _ in pairs)):
            self._start_free(pairs, is_of_one=is_of_one)
            return
        heads, batches = list[Pair](), dict[int, LineRun]()
        for taker, message in pairs:
            if self._is_apart(taker, message):
                continue
            if taker.caller.batch is None:
                heads.append((taker, message))
                continue
            line = batches[id(taker)] = self._lines.get(id(taker)) or self._new_line(id(taker))
            line.forms_batches = True
            line.items.append((taker, message))
        for line in batches.values():
            self.start(line)
        self._start_heads(heads)

    def _looks_closer(self, _pairs: Sequence[Pair]) -> bool:
        """Whether it depends on the message what becomes of it."""
        return bool(self._quarantine)

    def _is_apart(self, taker: Taker, message: Message) -> bool:
        """Whether a free message is seen to by itself: one that is quarantined waits in a line for its turn."""
        if not (self._quarantine and message in self._quarantine and taker.handler.runs_here):
            return False
        line = self._new_line(~message.offset)
        line.items.append((taker, message))
        self.start(line)
        return True

    def _add_by_key(self, pairs: Iterable[Any]) -> None:
        heads: dict[int, Pair] = {}
        lines: dict[int | None, LineRun] = self._lines  # type: ignore[assignment]
        starts = self._loop.time() < self.lease.certain_until  # and nothing is to be looked at before that
        starts = starts and not (self._quarantine or self._earlier or self._ended.done())
        is_unfinished, last, known = self._process_queue.is_unfinished, None, self._keys_of
        for _, places in self._places:
            forget(places, self._lines, self._process_queue)
        for taker, message in pairs:
            if taker is not last:
                last, keys = taker, known.get(id(taker)) or self._keys_in(taker)
                key_of, places = keys.key_of, keys.places
            try:
                key = key_of(message)
                place = places.get(key)
            except Exception as error:
                refused = self._new_line(~message.offset)
                refused.item = message
                step = [(message, no_place(error), None)]
                self._do(refused, self._again(refused, taker, step, rolls_back=False))
                continue
            line = lines.get(place)
            if line is None:
                if place is not None and is_unfinished(place):
                    line = self._line_behind(place, heads)
                elif starts:
                    places[key] = message.offset
                    heads[message.offset] = taker, message
                    continue
                else:
                    places[key] = ~message.offset
                    line = self._new_line(~message.offset)
            line.items.append((taker, message))
            if not line.is_at_work:
                self.start(line)
        if heads:
            self._start_heads(list(heads.values()))

    def _keys_in(self, taker: Taker) -> HandlerKeys:
        order_by = taker.handler.subscription.order_by
        places = next((places for one, places in self._places if one == order_by), None)
        if places is None:
            self._places.append((order_by, places := {}))
        keys = HandlerKeys(taker, places, self._mode.keyless, self._context.member)
        return self._keys_of.setdefault(id(taker), keys)

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
            self._process_queue.when_finished[head] = partial(self._proceed, line)
        return line

    def _start_heads(self, pairs: Sequence[Pair]) -> None:
        """Those that may go together share a run."""
        for _, share in split([taker.caller.goes_with for taker, _ in pairs], pairs):
            self._start_free(share, is_of_one=len({id(taker) for taker, _ in share}) == 1)

    def _start_free(self, pairs: Sequence[Pair], *, is_of_one: bool) -> None:
        run, caller = FreeRun(pairs, self, is_of_one=is_of_one), pairs[0][0].caller
        self._free[run] = None
        caller.workers.submit(caller, run)

    def walk_apart(self, run: FreeRun) -> None:
        """One of its handlers has no free call: from now on each has a run of its own, unless nothing may start."""
        if run.starts_nothing:
            return
        left = run.withdraw()
        for _, share in split([taker for taker, _ in left], left):
            self._start_free(share, is_of_one=True)
        self.walked(run)

    def _park(self, caller: Caller, messages: Sequence[Message], after: float) -> None:
        """Park messages of one call: their topic was stopped, or they start again after a while; not after the end."""
        if self._ended.done():
            self._left += len(messages)
            return
        items: Sequence[Item] = messages if caller.batch is None else cut(messages, caller.batch)
        run = FreeRun([(self._taker(caller), item) for item in items], self, is_of_one=True)
        self._free[run] = None
        self._loop.call_later(after, self._submit, run)

    def _submit(self, run: FreeRun) -> None:
        if run.items and not run.starts_nothing:
            run.submit()

    def _taker(self, caller: Caller) -> Taker:
        known = self._takers.get(id(caller))
        if known is None:
            queue, handler = self._process_queue, caller.handler
            acks: Any
            if self.retries is None:
                acks = SentBack(queue, handler, self._failures, partial(self._park, caller), self._context.stopping)
            elif handler.decisions is not None:
                acks = ManualCommits(queue, caller, handler.decisions, self._uncommitted)
            else:
                acks = ByOffset(queue, handler)
            known = self._takers[id(caller)] = Taker(caller, acks)
        return known

    # From a line to workers.

    def start(self, line: LineRun) -> None:
        """Have its first message started, if it may."""
        if line.is_at_work or line.starts_nothing or not line.items:
            return
        taker = line.items[0][0]
        if line.forms_batches:
            while line.items and line.has_formed(taker.caller.batch or 1, is_last=self._ended.done()):
                self._start_free([line.items.popleft()], is_of_one=True)
            return
        if self._quarantine or self._earlier or taker.caller.batch is not None:
            line.most = 1
            if not self._is_prepared(line, taker):
                return
        else:
            line.most = MESSAGES_PER_ROUND
        if self._loop.time() >= self.lease.certain_until:
            self._await_lease()
            return
        line.is_at_work = True
        taker.caller.workers.submit(taker.caller, line)

    def _is_prepared(self, line: LineRun, taker: Taker) -> bool:
        """Whether its first message may start now; otherwise it is seen to, and the line goes on after that."""
        quarantined = self._quarantine if self._quarantine and taker.handler.runs_here else ()
        most = 1 if quarantined else taker.caller.batch
        if taker.caller.batch is not None and not line.has_formed(most or 1, is_last=self._ended.done()):
            return False
        item, earlier = line.items[0][1], self._earlier
        is_noted = any(one.offset in earlier or one in quarantined for one in messages_of(item))
        if not is_noted or last_of(item).offset <= line.checked:
            return True
        line.checked = last_of(item).offset
        self._do(line, self._check(line, taker, item))
        return False

    async def _check(self, line: LineRun, taker: Taker, item: Any) -> None:
        """Store what has no attempt left as a dead letter, and wait for the turn of a quarantined message."""
        kept = list[Message]()
        for message in messages_of(item):
            if not self._process_queue.holds(message):
                return  # the end has withdrawn it
            if await self._is_dead(line, taker, message):
                self._started_to = max(self._started_to, message.offset)
            else:
                kept.append(message)
            if self._ended.done() and self._process_queue.holds(message):
                return  # it rests: the queue's next owner gets it again
        if len(kept) < len(messages_of(item)):
            line.items.popleft()
            if kept:
                line.items.appendleft((taker, kept))
        first, quarantine = line.in_turn if kept else None, self._quarantine
        if first is None or quarantine is None or await quarantine.turn(first, taker.handler, self._ended):
            self._proceed(line)

    async def _is_dead(self, line: LineRun, taker: Taker, message: Message) -> bool:
        """Whether it has no attempt left; then it is stored as a dead letter, unless the delivery ended before."""
        handler, retries = taker.handler, self.retries
        if retries is not None and await retries.is_exhausted(handler, message):
            return True
        quarantine = self._quarantine if handler.runs_here else None
        if not quarantine or message not in quarantine:
            return False
        # Deaths count beside failed attempts, and are not among them: the journal knows them for the next session.
        if (dead := quarantine.dead_letter_of(message, handler)) is None:
            line.in_turn = message
        elif retries is None:
            taker.acks.ended(message if taker.caller.batch is None else [message], dead, True)
            quarantine.lift_when_finished(message)
        elif await retries.store_dead_letter(handler, message, Failure("DeadLetter", dead.reason, dead=True)):
            quarantine.lift(message.offset)
        return dead is not None

    # What workers report.

    def returned(self, line: LineRun) -> None:
        """Workers have given it back: what they started of it is done."""
        if line.in_turn is not None and (not line.items or first_of(line.items[0][1]) is not line.in_turn):
            self._turn_over(line)
        self._proceed(line)

    def ended_free(self, taker: Taker, item: Any, result: object, raised: bool) -> None:
        """The call for a free message did not just return: from now on its key, if it has one, has its own line."""
        if self.retries is None:
            taker.acks.ended(item, result, raised)
            return
        self._process_queue.when_finished.pop(item.offset, None)
        line = self._lines.get(item.offset) or self._new_line(item.offset)
        line.is_at_work = True
        self.ended_call(line, taker, item, result, raised)

    def walked(self, run: FreeRun) -> None:
        """A worker has given it back, perhaps while others go on with it."""
        if run.items:
            if run.starts_nothing or self._loop.time() >= self.lease.certain_until:
                run.starts_nothing = True
                self._await_lease()
            elif not run.is_queued:
                run.submit()
        elif not run.walkers and run in self._free:
            del self._free[run]
            self._started_to = max(self._started_to, run.last_offset)
        if self.retries is not None:
            self.tidy_soon()

    def ended_call(self, line: LineRun, taker: Taker, item: Any, result: object, raised: bool) -> None:
        """A call failed, returned something, or ended when the lease was over."""
        self._turn_over(line)
        line.rests = True
        is_certain = self._loop.time() < self.lease.certain_until
        if is_certain and not self.is_void:
            self._acknowledge(line, taker, item, result, raised)
        elif is_certain or self._ended.done():
            # It rests: the queue's next owner gets it again.
            if not self._is_abandoned:  # otherwise it may just be cancelled, which is no failure
                self._in_vain(taker, item, result, raised, is_certain=is_certain)
        else:
            self._uncertain.append((line, taker, item, result, raised))
            self._await_lease()

    def _acknowledge(self, line: LineRun, taker: Taker, item: Any, result: object, raised: bool) -> None:
        """Acknowledge what the call has done; what it has not done is tried again."""
        if self.retries is None:
            taker.acks.ended(item, result, raised)
        elif failures := taker.acks.acknowledge(item, result, raised):
            step = self.retries.step_after(taker.handler, failures)
            self._do(line, self._again(line, taker, step, rolls_back=taker.acks.rolled_back))
            return
        self._proceed(line)

    async def _again(self, line: LineRun, taker: Taker, step: Step, *, rolls_back: bool) -> None:
        """Dead letters are stored; after a delay the others are at the front of their line again."""
        assert self.retries is not None
        retried = await self.retries.take(taker.handler, step)
        if retried is None or ((retried or rolls_back) and self._ended.done()):
            return  # it rests: the queue's next owner gets it again
        handled = [*self._uncommitted.take(), (taker.caller, retried)] if rolls_back else [(taker.caller, retried)]
        for caller, messages in reversed(handled):
            line.put_back(self._taker(caller), messages)
        self._proceed(line)

    def _proceed(self, line: LineRun) -> None:
        """Its next message may start; a line of a key that has none is forgotten."""
        line.is_at_work = line.rests = False
        if line.item is not None:
            self._started_to = max(self._started_to, last_of(line.item).offset)
            line.item = None
        self.tidy_soon()
        if line.items:
            self.start(line)
        elif not self._is_in_one_line:
            self._lines.pop(line.number, None)

    def tidy_soon(self) -> None:
        """Messages were finished, perhaps while their run goes on."""
        if self._is_in_one_line:
            self._tidy()
        elif not (self._is_tidied_soon or self.retries is None):
            self._is_tidied_soon = True
            self._loop.call_soon(self._tidy)

    def _tidy(self) -> None:
        """Messages were finished: once for all that happens in this turn of the loop."""
        self._is_tidied_soon = False
        offset = self._process_queue.commit_offset
        if self._quarantine:
            self._quarantine.lift_below(offset)
        # After the end a message may be left that is not a dead letter yet.
        if self.retries is not None and not self._ended.done():
            self.retries.done_below(offset)
        self._context.prompt(self._process_queue)

    def _turn_over(self, line: LineRun) -> None:
        """A quarantined message was called, and the process lives; or it is not called any more, and stays so."""
        if line.in_turn is not None and self._quarantine is not None:
            (self._quarantine.turn_over if line.item is None else self._quarantine.ended)(line.in_turn)
        line.in_turn = None

    def _do(self, line: LineRun, work: Any) -> None:
        """See to the first message of a line; an error of ours ends the session."""
        line.is_at_work = line.rests = True
        self._seen_to += 1
        self._callers.tasks.start(work, f"in order {self.queue}").add_done_callback(self._is_done)

    def _is_done(self, task: asyncio.Task[None]) -> None:
        self._seen_to -= 1
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """An error of ours: the session in order cannot go on, and its owner begins another one."""
        if self.retries is None or self.over.done():
            return  # free messages go on, and the offset of this one is not passed
        self.over.set_exception(error)
        self.over.exception()  # reported already, by the owner of the task
        self.end(start_no_more=True)

    def why_it_waits(self, stood_still: float) -> Text:
        """A message waits for its turn or is tried again in place, all calls are busy with other queues, a rate lets
        none start, or a message is parked.
        """
        queue, of_turn = self._process_queue, "" if self._quarantine is None else self._quarantine.why_it_waits()
        if of_turn or not queue or stood_still < CALL_PATIENCE:
            return of_turn
        known = () if self.retries is None else self.retries.failed.values()
        if failed := [one for one in known if queue.is_unfinished(one.offset)]:
            offset, times, _ = min(failed)
            return f"#{offset} has failed: what is behind it waits for its attempt {times + 1}"
        callers, parked = self._callers.waiting(), queue.parked
        if not (callers or parked):
            return ""
        messages = queue.unfinished()
        running = {id(message) for _, item in self._callers.in_flight() for message in messages_of(item)}
        if any(id(message) in running for message in messages):
            return ""
        topics = {message.topic for message in messages}
        lacking = [caller.lacks for caller in callers if caller.handler.subscription.topic in topics]
        if lacking or parked is None or not queue.holds(parked[0]):
            return ", ".join(lacking)
        return f"#{parked[0].offset} is parked: {parked[1]}"

    # The lease.

    def _await_lease(self) -> None:
        """The lease was found over: go on when it is granted again, end when it is lost."""
        if not (self._awaits_lease or self._ended.done()):
            self._awaits_lease = True
            decided = partial(self._loop.call_soon, self._lease_decided)
            if self._loop.time() < self.lease.certain_until:  # it was granted before we heard of its end
                decided()
            else:
                self.lease.when_decided(decided)

    def _lease_decided(self) -> None:
        self._awaits_lease = False
        if self._ended.done():
            return
        if self.lease.is_lost:
            self.over.set_result(None)
            self.end(start_no_more=True)
            return
        uncertain, self._uncertain = self._uncertain, []
        for call in uncertain:
            self.ended_call(*call)
        self._start_all()

    def _start_all(self) -> None:
        """Nothing holds any of them back."""
        for run in self.runs():
            run.starts_nothing = False
        for line in list(self._lines.values()):
            self.start(line)
        for run in list(self._free):
            self._submit(run)

    def _in_vain(self, taker: Taker, item: Any, result: object, raised: bool, *, is_certain: bool = False) -> None:
        """Nothing of this call is acknowledged; if its outcome pauses the topic, the topic is paused all the same. The
        attempt counts if another member may have had the queue: a handler that blocks the loop for longer than its
        lock lives has attempts too.
        """
        self._context.stopping.heard(taker.handler, taker.acks.judged(item, result, raised))
        if not is_certain and self.retries is not None:
            self.retries.count_attempts(messages_of(item))

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
            line.wait_no_more()
        for _, *call in self._uncertain:
            self._in_vain(*call)
        self._uncertain.clear()
        if self._quarantine is not None:
            self._quarantine.give_up()
        # Not before: nothing is drained while it is open whether messages below a started one start still.
        self._ended.set_result(None)
        if not (start_no_more or self.is_void) and self._loop.time() < self.lease.certain_until:
            self._finish()
        else:
            self._finish_no_more()

    def _finish(self) -> None:
        highest = self._started_to
        left = {run: run.withdraw() for run in self.runs()}  # before the look at what is started: threads go on
        for line in self._lines.values():
            # What is seen to in place may become a dead letter still; without order it just waits for its turn.
            seen_to = line.checked if line.rests and self.retries is not None else -1
            highest = max(highest, seen_to, -1 if line.item is None else last_of(line.item).offset)
        self._started_to = highest = max(highest, *(run.last_offset for run in self._free), -1)
        if sum([run.give_back(pairs, highest) for run, pairs in left.items()]):
            self._process_queue.withdraw(highest + 1)
        if self._mode.in_order:
            self._finishing = self._loop.call_later(RUN_ON, self._finish_no_more)
        self._start_all()

    def _finish_no_more(self) -> None:
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None
        for run in self.runs():
            run.starts_nothing = True
        for line in self._lines.values():
            if not line.walkers:
                self._turn_over(line)
        for run in self._free:
            self._left += sum(len(messages_of(item)) for _, item in run.withdraw())

    async def drained(self) -> None:
        """Returns a moment after what was started has ended, and nothing is about to start. Call `end` first."""
        await until(self._is_drained)
        for run in self.runs():
            run.items.clear()  # workers may have it still, perhaps behind one of which nothing may start
        self._finish_no_more()
        if self.retries is not None:
            self.retries.close()

    def _is_drained(self) -> bool:
        runs = self.runs()
        if self.retries is not None:
            return not (self._seen_to or any(run.is_under_way for run in runs))
        # What is being sent back counts as well: its copy is stored before the next owner begins.
        held = (item for run in runs if not run.is_about_to_start for _, item in list(run.items))
        return len(self._process_queue) <= self._left + sum(len(messages_of(item)) for item in held)

    async def abandon(self) -> bool:
        """Cancel the running calls in order; whether they have ended. A thread goes on, and so may a handler."""
        if self.retries is None:
            return False  # they go on until the group's workers are stopped
        self._callers.collect()  # what was done before counts
        self._is_abandoned = True
        self.end(start_no_more=True)
        await self._callers.cancel(lambda run: run.delivery is self)
        return not any(run.walkers for run in self.runs())

    def discard(self) -> None:
        """The session is void: acknowledge nothing of it any more."""
        self._process_queue.close()
        self.end(start_no_more=True)
