"""Pulled messages → works for the handlers that want them, many at once.

One `ConcurrentMode` per group owns the workers of all its handlers. Each session gets a
delivery of its own, which remembers the works it has given out: when the queue is given
up, works that were not started are withdrawn, except those that lie below a started one.
So the committed offset passes everything that was ever started.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, compress
from typing import Any

from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.items import cut, first_of
from rocketapp.consumer.journal import Journal
from rocketapp.consumer.member import GroupStats
from rocketapp.consumer.modes.by_workers import ModeByWorkers
from rocketapp.consumer.modes.context import ModeContext
from rocketapp.consumer.modes.delivery import NewCompletion, QueueLock
from rocketapp.consumer.quarantine import AckInTurn, QueueQuarantine
from rocketapp.consumer.retry.slow import SlowSendBack
from rocketapp.consumer.workers.batches import Batches
from rocketapp.consumer.workers.mixed import MixedRun, MixedWorker, Taker
from rocketapp.consumer.workers.of_handlers import WorkersOfHandlers
from rocketapp.consumer.workers.work import Completion, Work, Workers
from rocketapp.model.names import is_retry_topic
from rocketapp.model.outcome import DeadLetter
from rocketapp.state.handover import RUN_ON
from rocketapp.state.pauses import EVERY, Pauses
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.tag_table import TagTable, split
from rocketapp.wire.record import Message

_POLLED = "it came back for a retry, and its topic is polled by now"


class ConcurrentMode(ModeByWorkers):
    """Calls the handlers of one group, many messages at once."""

    needs_lock = False
    run_on: float | None = RUN_ON

    def __init__(self, topics: Iterable[ConsumedTopic], context: ModeContext) -> None:
        """Orderly topics are here too: a message that comes back through the retry topic has lost its order anyway.

        So are polled ones, whose messages may come back from a time when the group subscribed them.
        """
        topics = list(topics)
        self.polled: dict[str, Handler] = {one.topic: one.handlers[0] for one in topics if not one.kind.by_message}
        """Handlers that are not called with messages."""
        self.stats: GroupStats = context.member.stats
        self.new_completion: NewCompletion = context.new_completion
        self.released: SlowSendBack | None = context.released
        self._group = context.member.name
        self.pauses: Pauses = context.member.pauses
        self.journal: Journal | None = context.journal
        self._member = context.member
        super().__init__(WorkersOfHandlers(context.member, context.threads, self.journal), context.forwarding)
        self.tables: dict[str, TagTable[Workers]] = self._workers.tables(one for one in topics if one.kind.by_message)
        """Which workers take which message, by topic."""
        self.mixed: MixedWorker = self._workers.mixed
        """Walks through messages of many handlers."""
        self.deliveries: dict[ConcurrentDelivery, None] = {}
        """Those that were not ended."""

    def open(
        self,
        process_queue: ProcessQueue[Message],
        lock: QueueLock | None = None,
        _flow: object = None,
        *,
        new_completion: NewCompletion | None = None,
    ) -> ConcurrentDelivery:
        """The delivery of a new session. `new_completion`: what judges its calls, in place of the group's."""
        return ConcurrentDelivery(process_queue, self, new_completion)

    def pace(self, handler: Handler, concurrency: int, rate: float | None, batch: int | None) -> None:
        """See ModeByWorkers. Batches that were not started obey as well."""
        super().pace(handler, concurrency, rate, batch)
        if batch is not None:
            for delivery in self.deliveries:
                delivery.cut_batches(handler, batch)

    def quarantine(self, process_queue: ProcessQueue[Message]) -> QueueQuarantine | None:
        """What is quarantined in a new session, if anything is."""
        if self.journal is None:
            return None
        return QueueQuarantine(self.journal, self._member, process_queue) or None

    def record(self, process_queue: ProcessQueue[Message], first: int, last: int) -> bytes:
        """What a worker notes down that takes these offsets."""
        queue = process_queue.message_queue
        return b"" if self.journal is None else self.journal.record(self._group, queue, first, last)


class ConcurrentDelivery:
    """The messages of one session on their way to workers."""

    mixes = True
    """Messages of many handlers may be walked through in one run."""

    def __init__(
        self, process_queue: ProcessQueue[Message], mode: ConcurrentMode, new_completion: NewCompletion | None = None
    ) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Never done: a concurrent delivery goes on until it is ended."""
        topic = process_queue.message_queue.topic
        self._process_queue = process_queue
        self._topic = None if is_retry_topic(topic) else topic
        """None: a retry queue, whose messages belong to any topic."""
        self._new_completion = new_completion or mode.new_completion
        self._stats, self._unmatched_of = mode.stats, mode.unmatched
        self._tables: Mapping[str, TagTable[Workers]] = mode.tables
        self._polled: Mapping[str, Handler] = mode.polled
        self._released = mode.released
        self._quarantine = mode.quarantine(process_queue)
        self._record = None if mode.journal is None else partial(mode.record, process_queue)
        self._takers: dict[int, Taker] = {}
        """By the identity of their workers."""
        self._takers_of: dict[str, TagTable[Taker]] = {}
        """By topic."""
        self._mixed = mode.mixed
        self._works: deque[tuple[Workers | None, Work | MixedRun]] = deque()
        """None: those of many handlers."""
        self._started_to = -1
        """No started message lies above this offset, except messages of `_works`."""
        self._batches: dict[int, tuple[Workers, Batches]] = {}
        self._copies: list[tuple[Workers, list[Any]]] = []
        """Items that wait for the end of a call here, which was sent back, or for some seconds."""
        self._pauses = mode.pauses
        self._given_up = False
        self._left_behind = 0
        """Messages that are neither started nor withdrawn, when the queue was given up."""
        self._drained = asyncio.Event()
        self._deliveries = mode.deliveries
        self._deliveries[self] = None

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

    def _take_back(self, takes: Callable[[Workers], bool]) -> list[tuple[Workers, list[Any]]]:
        """What was not started of the works of these workers."""
        works, self._works = self._works, deque()
        found: list[tuple[Workers, list[Any]]] = []
        for workers, work in works:
            if workers is None or not takes(workers):
                self._works.append((workers, work))
                continue
            items, started_to = work.withdraw()
            self._started_to = max(self._started_to, started_to)
            if items:
                found.append((workers, items))
        return found

    def cut_batches(self, handler: Handler, most: int) -> None:
        """Batches of this handler that were not started have at most `most` messages from now on."""
        for workers, items in self._take_back(lambda workers: workers.handler is handler):
            self._submit(workers, items)
        for workers, batches in self._batches.values():
            if workers.handler is handler:
                batches.resize(most)

    def _submit_copies(self) -> None:
        copies, self._copies = self._copies, []
        for workers, items in copies:
            self._submit(workers, items)

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
        for workers, messages in left:
            needed = [message for message in messages if message.offset <= self._started_to]
            dropped += (message.offset for message in messages if message.offset > self._started_to)
            if not needed or self._process_queue.closed:
                continue
            if workers.is_paused:
                # Not even to save messages above them from a repetition.
                self._left_behind += len(needed)
            else:
                self._submit(workers, needed if workers.batch is None else [needed])
        if dropped:
            self._process_queue.withdraw(min(dropped))

    def _withdrawn(self) -> list[tuple[Workers, list[Message]]]:
        """From now on the queue is given up: everything that was not started."""
        self._given_up = True
        self._deliveries.pop(self, None)
        taken = self._take_back(lambda _: True)
        runs, self._works = self._works, deque()
        for _, run in runs:  # those whose messages belong to many
            pairs, started_to = run.withdraw()
            self._started_to = max(self._started_to, started_to)
            taken += ((taker.workers, list(messages)) for taker, messages in _by_taker(pairs))
        left = [(workers, _messages(workers, items)) for workers, items in taken]
        left += ((workers, _messages(workers, items)) for workers, items in self._copies)
        self._copies.clear()
        for workers, batches in self._batches.values():
            left.append((workers, batches.close()))
        return left

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
        self._leave(lambda workers: workers.is_paused)

    def _leave(self, takes: Callable[[Workers], bool]) -> None:
        """After the end: what was not started of these stays so."""
        for workers, items in self._take_back(takes):
            self._left_behind += len(_messages(workers, items))
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

    def _give(self, topic: str, messages: Sequence[Message]) -> None:
        if topic in self._polled:
            self._refuse(self._polled[topic], messages)
            return
        if (table := self._takers_of.get(topic)) is None:
            table = self._takers_of[topic] = self._tables.get(topic, TagTable(())).with_each(self._taker)
        takers: Sequence[Taker | None] = table.takers(messages)
        if takers.count(takers[0]) < len(takers) and self.mixes and not (self._quarantine or self._given_up):
            takers, messages = self._without_quick(takers, messages)
        for taker, taken in split(takers, messages):
            workers = None if taker is None else taker.workers
            given = self._without_dead(workers, taken)
            share = given if self._quarantine is None else self._without_quarantined(workers, given)
            if workers is None:
                self._give_unmatched(topic, share)
            elif not share:
                continue
            elif workers.batch is not None:
                self._batches_of(workers, *workers.batch).add(share)
            else:
                self._submit(workers, list(share))

    def _without_quick(
        self, takers: Sequence[Taker | None], messages: Sequence[Message]
    ) -> tuple[Sequence[Taker | None], Sequence[Message]]:
        """Have messages of many handlers walked through in one run; those that are left go to their workers."""
        quick = [taker is not None and taker.workers.is_quick for taker in takers]
        if (released := self._released) is not None:
            pairs = zip(quick, messages, strict=True)
            quick = [is_quick and not released.waits(one, self._submit_copies) for is_quick, one in pairs]
        if (count := sum(quick)) < 2:
            return takers, messages
        slow = [not is_quick for is_quick in quick] if count < len(quick) else ()
        left = list(compress(takers, slow)), list(compress(messages, slow))
        taken = [taker for taker in compress(takers, quick) if taker is not None]
        finish = self._process_queue.finish_all
        run = MixedRun(
            taken, messages if count == len(quick) else list(compress(messages, quick)), finish, self._give_left
        )
        run.record_of = self._record
        self._forget_started()
        self._works.append((None, run))
        self._mixed.submit(run)
        return left

    def _give_left(self, left: Sequence[tuple[Taker, Message]]) -> None:
        """What was not started of a run goes to the workers of each handler."""
        for taker, messages in _by_taker(left):
            self._submit(taker.workers, list(messages))

    def _refuse(self, handler: Handler, messages: Sequence[Message]) -> None:
        """What came back for a retry has no handler any more that it could be given to."""
        completion = self._new_completion(self._process_queue, handler, lambda _message, _after: None)
        for message in messages:
            completion.judge(message, DeadLetter(_POLLED), True)

    def _without_dead(self, workers: Workers | None, messages: Sequence[Message]) -> Sequence[Message]:
        """The messages that a handler may be called with."""
        return messages

    def _give_unmatched(self, topic: str, messages: Sequence[Message]) -> None:
        for workers, share in self._unmatched_of(topic, messages):
            if workers is None:
                self._process_queue.finish_all(share)
                self._stats.count_unmatched(topic, len(share))
            else:
                self._submit(workers, list(share))

    def _batches_of(self, workers: Workers, most: int, wait: float) -> Batches:
        known = self._batches.get(id(workers))
        if known is None:
            known = workers, Batches(most, wait, lambda found: self._submit(workers, [found]))
            self._batches[id(workers)] = known
        return known[1]

    def _completion(self, workers: Workers) -> Completion:
        return self._taker(workers).completion

    def _taker(self, workers: Workers) -> Taker:
        known = self._takers.get(id(workers))
        if known is None:
            completion = self._new_completion(self._process_queue, workers.handler, partial(self._keep, workers))
            known = self._takers[id(workers)] = Taker(workers, completion)
        return known

    def _keep(self, workers: Workers, message: Message, after: float) -> None:
        """It is parked: its topic was stopped, or it starts again after a while."""
        items = [message if workers.batch is None else [message]]
        if self._given_up:
            self._left_behind += 1
            self._check_drained()
        elif after:
            self._copies.append((workers, items))
            asyncio.get_running_loop().call_later(after, self._submit_copies)
        else:
            self._submit(workers, items)

    def _without_quarantined(self, workers: Workers | None, messages: Sequence[Message]) -> Sequence[Message]:
        """The others. Those that are quarantined start when they have their turn, or are dead letters."""
        quarantine = self._quarantine
        if workers is None or not quarantine:
            return messages
        others = []
        for message in messages:
            if message not in quarantine:
                others.append(message)
                continue
            item = message if workers.batch is None else [message]
            if (dead := quarantine.dead_letter_of(message, workers.handler)) is not None:
                self._completion(workers).judge(item, dead, True)
                quarantine.settled_when_finished(message)
            else:
                quarantine.add(message, workers.handler, partial(self._submit, workers, [item]))
        return others

    def _submit(self, workers: Workers, items: list[Any]) -> None:
        if workers.batch is not None:
            # They may have been formed before there was another most.
            items = [part for item in items for part in cut(item, workers.batch[0])]
        if self._released is not None and not (items := self._without_running(workers, items, self._released)):
            return
        self._start(workers, items)

    def _without_running(self, workers: Workers, items: list[Any], released: SlowSendBack) -> list[Any]:
        """The items that may start: not copies of messages whose first call still runs here."""
        free = []
        for item in items:
            if not released.waits(item, self._submit_copies):
                free.append(item)
            elif self._given_up:
                self._left_behind += len(_messages(workers, [item]))
                self._check_drained()
            else:
                self._copies.append((workers, [item]))
        return free

    def _new_work(self, items: list[Any], completion: Completion) -> Work:
        return Work(items, completion)

    def _start(self, workers: Workers, items: list[Any]) -> None:
        completion = self._completion(workers)
        self._forget_started()
        is_alone = False
        if self._quarantine is not None and (is_alone := self._quarantine.has_turn(message := first_of(items[0]))):
            completion = AckInTurn(completion, self._quarantine, message)
        work = self._new_work(items, completion)
        if self._record is not None:
            work.record, work.is_alone = self._record(work.first_offset, work.last_offset), is_alone
        self._works.append((workers, work))
        workers.submit(work)

    def _forget_started(self) -> None:
        works = self._works
        while works and not works[0][1].left:
            self._started_to = max(self._started_to, works.popleft()[1].last_offset)


def _messages(workers: Workers, items: list[Any]) -> list[Message]:
    return items if workers.batch is None else list(chain.from_iterable(items))


def _by_taker(pairs: Sequence[tuple[Taker, Message]]) -> list[tuple[Taker, Sequence[Message]]]:
    return split([taker for taker, _ in pairs], [message for _, message in pairs])
