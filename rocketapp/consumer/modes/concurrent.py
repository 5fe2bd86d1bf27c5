"""The concurrent mode: messages start independently of one another, many at once.

One `ConcurrentMode` per group calls all its handlers. Each session gets a delivery of its own, which remembers the runs
it has given out: when the queue is given up, messages that were not started are withdrawn, except those that lie below
a started one. So the committed offset passes everything that was ever started.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from rocketapp.consumer.handler import ConsumedTopic, Handler, cut, first_of, messages_of
from rocketapp.consumer.modes.delivery import Mode, ModeContext, NewAcks, QueueLock
from rocketapp.consumer.quarantine import AckInTurn
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.run import FreeRun, Pair, Taker
from rocketapp.model.names import is_retry_topic
from rocketapp.model.outcome import DeadLetter
from rocketapp.state.pauses import EVERY
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.tag_table import TagTable, split
from rocketapp.wire.record import Message

_TICK = 0.001
"""Seconds by which a timer may be early."""
_POLLED = "it came back for a retry, and its topic is polled by now"


class ConcurrentMode(Mode):
    """Calls the handlers of one group, many messages at once."""

    def __init__(self, topics: Iterable[ConsumedTopic], context: ModeContext) -> None:
        """Orderly topics are here too: a message that comes back through the retry topic has lost its order anyway.

        So are polled ones, whose messages may come back from a time when the group subscribed them.
        """
        super().__init__(context)
        topics = list(topics)
        self.polled: dict[str, Handler] = {one.topic: one.handlers[0] for one in topics if not one.kind.by_message}
        """Handlers that are not called with messages."""
        self.tables: dict[str, TagTable[Caller]] = {
            one.topic: self.callers.table(one) for one in topics if one.kind.by_message
        }
        """Who is called for which message, by topic."""

    def open(
        self,
        process_queue: ProcessQueue[Message],
        lock: QueueLock | None = None,
        _flow: object = None,
        *,
        new_acks: NewAcks | None = None,
    ) -> ConcurrentDelivery:
        """The delivery of a new session. `new_acks`: what acknowledges its messages, in place of the group's."""
        return ConcurrentDelivery(process_queue, self, new_acks)


class ConcurrentDelivery:
    """The messages of one session on their way to their handlers."""

    def __init__(
        self, process_queue: ProcessQueue[Message], mode: ConcurrentMode, new_acks: NewAcks | None = None
    ) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Never done: a concurrent delivery goes on until it is ended."""
        topic = process_queue.message_queue.topic
        self._process_queue, self._mode = process_queue, mode
        self._topic = None if is_retry_topic(topic) else topic
        """None: a retry queue, whose messages belong to any topic."""
        self._new_acks = new_acks or mode.context.new_acks
        self._pauses = mode.context.member.pauses
        self._quarantine = mode.quarantine(process_queue)
        self._record_of = mode.recorder(process_queue)
        self._takers: dict[int, Taker] = {}
        """By the identity of their callers."""
        self._tables: dict[str, TagTable[Taker]] = {}
        """By topic."""
        self._runs: deque[FreeRun] = deque()
        self._started_to = -1
        """No started message lies above this offset, except messages of `_runs`."""
        self._batches: dict[int, tuple[Taker, Batches]] = {}
        self._copies: list[tuple[float, Pair]] = []
        """Items that wait until the loop's time is this."""
        self._given_up = False
        self._left_behind = 0
        """Messages that are neither started nor withdrawn, when the queue was given up."""
        self._drained = asyncio.Event()

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        if self._topic is not None:
            self._give(self._topic, messages)
            return
        by_topic: dict[str, list[Message]] = {}
        for message in messages:
            by_topic.setdefault(message.topic, []).append(message)
        for topic, share in by_topic.items():
            self._give(topic, share)

    # From a message to a run.

    def _give(self, topic: str, messages: Sequence[Message]) -> None:
        if not messages:
            return
        if (polled := self._mode.polled.get(topic)) is not None:
            self._refuse(polled, messages)
            return
        if (table := self._tables.get(topic)) is None:
            table = self._tables[topic] = self._mode.tables.get(topic, TagTable(())).with_each(self._taker)
        takers = table.takers(messages)
        first = takers[0]
        if first is not None and first.goes_with is first.caller.workers and not self._looks_closer(messages):
            is_of_one = takers.count(first) == len(takers)
            if is_of_one or all(taker and taker.goes_with is first.goes_with for taker in set(takers)):
                self._start(list(zip(takers, messages, strict=True)), is_of_one=is_of_one)  # type: ignore[arg-type]
                return
        together: list[Pair] = []
        for taker, share in split(takers, messages):
            if taker is None:
                self._give_unmatched(topic, share)
            elif (given := self._without_quarantined(taker, self._without_dead(taker, share))) and (
                taker.caller.batch is not None
            ):
                self._batches_of(taker).add(given)
            elif taker.goes_with is taker:
                self._submit([(taker, message) for message in given])
            else:
                together += ((taker, message) for message in given)
        self._submit_together(together)

    def _looks_closer(self, _messages: Sequence[Message]) -> bool:
        """Whether it depends on the message what becomes of it."""
        return bool(self._quarantine)

    def _submit_together(self, pairs: list[Pair]) -> None:
        """Give messages of many handlers to workers: one run for those of the loop, one for threads."""
        for workers in {id(taker.caller.workers): None for taker, _ in pairs}:
            share = [pair for pair in pairs if id(pair[0].caller.workers) == workers]
            self._submit(sorted(share, key=_offset))

    def _refuse(self, handler: Handler, messages: Sequence[Message]) -> None:
        """What came back for a retry has no handler any more that it could be given to."""
        acks = self._new_acks(self._process_queue, handler, lambda _message, _after: None)
        for message in messages:
            acks.ended(message, DeadLetter(_POLLED), True)

    def _without_dead(self, taker: Taker, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages that a handler may be called with."""
        return messages

    def _give_unmatched(self, topic: str, messages: Sequence[Message]) -> None:
        for caller, share in self._mode.forwarders(self._process_queue, topic, messages):
            taker = self._taker(caller)
            self._submit([(taker, message) for message in share])

    def _batches_of(self, taker: Taker) -> Batches:
        known = self._batches.get(id(taker))
        if known is None:
            known = taker, Batches(taker, lambda found: self._submit([(taker, found)]))
            self._batches[id(taker)] = known
        return known[1]

    def _taker(self, caller: Caller) -> Taker:
        known = self._takers.get(id(caller))
        if known is None:
            acks = self._new_acks(self._process_queue, caller.handler, partial(self._keep, caller))
            known = self._takers[id(caller)] = Taker(caller, acks)
        return known

    def _keep(self, caller: Caller, message: Message, after: float) -> None:
        """It is parked: its topic was stopped, or it starts again after a while."""
        pair = self._taker(caller), message if caller.batch is None else [message]
        if self._given_up:
            self._left_behind += 1
            self._check_drained()
        elif after:
            loop = asyncio.get_running_loop()
            self._copies.append((loop.time() + after, pair))
            loop.call_later(after, self._submit_copies)
        else:
            self._submit([pair])

    def _without_quarantined(self, taker: Taker, messages: Sequence[Message]) -> Sequence[Message]:
        """The others. Those that are quarantined start when they have their turn, or are dead letters."""
        quarantine = self._quarantine
        if not quarantine:
            return messages
        others = []
        for message in messages:
            if message not in quarantine:
                others.append(message)
                continue
            item = message if taker.caller.batch is None else [message]
            if (dead := quarantine.dead_letter_of(message, taker.handler)) is not None:
                taker.acks.ended(item, dead, True)
                quarantine.lift_when_finished(message)
            else:
                in_turn = Taker(taker.caller, AckInTurn(taker.acks, quarantine, message))
                quarantine.add(message, taker.handler, partial(self._submit, [(in_turn, item)]))
        return others

    def _submit(self, pairs: Sequence[Pair]) -> None:
        if pairs:
            self._start(pairs, is_of_one=all(taker is pairs[0][0] for taker, _ in pairs))

    def _submit_copies(self) -> None:
        now, copies = asyncio.get_running_loop().time() + _TICK, self._copies
        self._copies = [each for each in copies if each[0] > now]
        for at, pair in copies:
            if at <= now:
                self._submit([pair])

    def _start(self, pairs: Sequence[Pair], *, is_of_one: bool) -> None:
        runs = self._runs
        for _ in range(min(2, len(runs))):
            # Twice as many are looked at as are added: no run that waits for long keeps those behind it.
            before = runs.popleft()
            if before.items:
                runs.append(before)
            else:
                self._started_to = max(self._started_to, before.last_offset)
        run = self._new_run(pairs, is_of_one=is_of_one)
        run.is_quarantined = isinstance(pairs[0][0].acks, AckInTurn)
        if pairs[0][0].handler.runs_here:
            run.record_of = self._record_of
        runs.append(run)
        self._mode.callers.submit(run)

    def _new_run(self, pairs: Sequence[Pair], *, is_of_one: bool) -> FreeRun:
        return FreeRun(pairs, self, is_of_one=is_of_one)

    def walked(self, run: FreeRun) -> None:
        """A worker has given it back, and there is more in it."""
        self._mode.callers.submit(run)

    def split(self, run: FreeRun) -> None:
        """One of its handlers has no free call: from now on each has a run of its own."""
        left, run.last_offset = run.withdraw()
        for taker, items in _by_taker(left):
            self._start([(taker, item) for item in items], is_of_one=True)

    # The end.

    def _take_back(self, takes: Callable[[Caller], bool]) -> list[tuple[Taker, list[Any]]]:
        """What was not started of the runs of these callers."""
        runs, self._runs = self._runs, deque()
        found: list[tuple[Taker, list[Any]]] = []
        for run in runs:
            if run.items and not takes(run.items[0][0].caller):
                self._runs.append(run)
                continue
            left, started_to = run.withdraw()
            self._started_to = max(self._started_to, started_to)
            found += _by_taker(left)
        return found

    def end(self, *, start_no_more: bool = False) -> None:
        """Withdraw what was not started, except what lies below something that was started."""
        if self._given_up:
            if start_no_more:
                self._leave(lambda _: True)
            return
        quarantined = [] if self._quarantine is None else self._quarantine.give_up()
        left = self._withdrawn()
        # Not beside one another, not even to save messages above them from a repetition.
        self._left_behind += sum(message.offset <= self._started_to for message in quarantined)
        dropped = [message.offset for message in quarantined if message.offset > self._started_to]
        for taker, messages in left:
            needed = [message for message in messages if message.offset <= self._started_to]
            dropped += (message.offset for message in messages if message.offset > self._started_to)
            if not needed or self._process_queue.closed:
                continue
            if taker.caller.is_paused:
                # Not even to save messages above them from a repetition.
                self._left_behind += len(needed)
            else:
                most = taker.caller.batch
                self._submit([(taker, item) for item in (needed if most is None else cut(needed, most))])
        if dropped:
            self._process_queue.withdraw(min(dropped))

    def _withdrawn(self) -> list[tuple[Taker, list[Message]]]:
        """From now on the queue is given up: everything that was not started."""
        self._given_up = True
        left = self._take_back(lambda _: True)
        left += ((taker, [item]) for _, (taker, item) in self._copies)
        self._copies.clear()
        messages = [(taker, [one for item in items for one in messages_of(item)]) for taker, items in left]
        for taker, batches in self._batches.values():
            messages.append((taker, batches.close()))
        return messages

    async def drained(self) -> None:
        """Returns when everything that was started has been finished. Call `end` first."""
        self._drained.clear()
        self._process_queue.watch(self._check_drained)
        self._pauses.watch(EVERY, self._leave_paused)
        try:
            self._leave_paused()
            await self._drained.wait()
        finally:
            self._process_queue.unwatch(self._check_drained)
            self._pauses.unwatch(EVERY, self._leave_paused)

    def _leave_paused(self) -> None:
        self._leave(lambda caller: caller.is_paused)

    def _leave(self, takes: Callable[[Caller], bool]) -> None:
        """After the end: what was not started of these stays so."""
        for _, items in self._take_back(takes):
            self._left_behind += sum(len(messages_of(item)) for item in items)
        self._check_drained()

    def _check_drained(self) -> None:
        if len(self._process_queue) <= self._left_behind:
            self._drained.set()

    async def abandon(self) -> bool:
        """False: the workers are shared with other queues, so running calls go on until the mode is stopped."""
        return False

    def discard(self) -> None:
        """The session is void: start and acknowledge nothing of it any more."""
        self._process_queue.close()
        self.end(start_no_more=True)


class Batches:
    """Hands over lists of messages for one handler; a message waits `batch_wait` seconds at the longest."""

    def __init__(self, taker: Taker, hand_over: Callable[[list[Message]], None]) -> None:
        self._caller, self._wait, self._hand_over = taker.caller, taker.handler.subscription.batch_wait, hand_over
        self._pending: list[Message] = []
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def _most(self) -> int:
        return self._caller.batch or 1

    def add(self, messages: Sequence[Message]) -> None:
        """Put these messages, in offset order, into the batch that is being formed."""
        self._pending += messages
        while len(self._pending) >= self._most:
            self._flush()
        if self._pending and self._timer is None:
            self._timer = self._loop.call_later(self._wait, self._flush)

    def close(self) -> list[Message]:
        """Hand over nothing more, and return the messages that are left."""
        left, self._pending = self._pending, []
        self._stop_timer()
        return left

    def _flush(self) -> None:
        self._stop_timer()
        batch, self._pending = self._pending[: self._most], self._pending[self._most :]
        if batch:
            self._hand_over(batch)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _offset(pair: Pair) -> int:
    return first_of(pair[1]).offset


def _by_taker(pairs: Sequence[Pair]) -> list[tuple[Taker, list[Any]]]:
    found = split(list(map(itemgetter(0), pairs)), list(map(itemgetter(1), pairs)))
    return [(taker, list(items)) for taker, items in found]
