"""The keyed mode: messages of one queue in order per key, many keys at once, under a lock that a broker holds.

One `KeyedMode` per group owns the workers of all its handlers. Each session gets a delivery, with a lane for each
handler: the completion of one endless work, which the handler's workers draw from. Before each start and after each
call the lease is compared with the clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.journal import Note
from rocketapp.consumer.modes.by_offset import ByOffset
from rocketapp.consumer.modes.by_workers import ModeByWorkers
from rocketapp.consumer.modes.context import ModeContext
from rocketapp.consumer.modes.delivery import QueueLock, lock_for
from rocketapp.consumer.modes.outcomes import text_of
from rocketapp.consumer.modes.retries_in_place import RetriesInPlace
from rocketapp.consumer.quarantine import QueueQuarantine
from rocketapp.consumer.workers.mixed import MixedWorker, Taker
from rocketapp.consumer.workers.of_handlers import WorkersOfHandlers
from rocketapp.consumer.workers.work import Work, Workers
from rocketapp.model.event import Observe, OrderKeyMissing
from rocketapp.model.subscription import Subscription, key_function
from rocketapp.state.handover import RUN_ON
from rocketapp.state.keyed import Keyed
from rocketapp.state.lease import Lease
from rocketapp.state.missing_keys import MissingKeys
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message


class KeyedMode(ModeByWorkers):
    """Calls the handlers with `order_by=` of one group."""

    run_on: float | None = None

    def __init__(self, topics: Iterable[ConsumedTopic], context: ModeContext) -> None:
        self.context: ModeContext = context
        self.needs_lock: bool = not context.member.broadcast
        workers = WorkersOfHandlers(context.member, context.threads, context.journal)
        super().__init__(workers, context.forwarding)
        self.tasks: Tasks = workers.tasks
        self.mixed: MixedWorker = workers.mixed
        self.key_watches: KeyWatches = KeyWatches(context.member.name, context.member.observe)
        self._tables = workers.tables(topics)

    def open(self, process_queue: ProcessQueue[Message], lock: QueueLock | None, _flow: object = None) -> KeyedDelivery:
        """The delivery of a new session under this lock."""
        lock = lock_for(process_queue, lock, needs_lock=self.needs_lock)
        return KeyedDelivery(process_queue, lock, self._tables[process_queue.message_queue.topic], self)


class KeyedDelivery:
    """The messages of one session on their way, one at a time per key."""

    def __init__(
        self, process_queue: ProcessQueue[Message], lock: QueueLock, table: TagTable[Workers], mode: KeyedMode
    ) -> None:
        self.process_queue: ProcessQueue[Message] = process_queue
        self.lease: Lease = lock.lease
        self._mode = mode
        self.context: ModeContext = mode.context
        self._lock, self._table = lock, table
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()
        """Done when the lock is lost."""
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.abandoned: bool = False
        """Cancellations of running calls are ours."""
        self.key_watches: KeyWatches = mode.key_watches
        self.retries: RetriesInPlace = RetriesInPlace(process_queue, self.ended, mode.context)
        journal, group = mode.context.journal, mode.context.member.name
        self.record_of: Callable[[Message], bytes] | None = None
        """What workers note down of each message in flight; None: nothing."""
        self.record: Callable[[int, int], bytes] | None = None
        self.quarantine: QueueQuarantine | None = None
        if journal is not None:
            self.record_of = journal.recorder(group, process_queue.message_queue)
            self.record = partial(journal.record, group, process_queue.message_queue)
            self.quarantine = QueueQuarantine(journal, mode.context.member, process_queue) or None
        self._lanes: dict[int, Lane] = {}
        """By the identity of their workers."""
        self._run = _RunOfMany(self)
        self.is_scheduled: bool = False
        """It is looked soon at what was finished and what may start."""
        self._asking: asyncio.Task[None] | None = None
        """Waits until the lock is certain again."""
        self._drained = asyncio.Event()
        self._finishing: asyncio.TimerHandle | None = None
        """After an end: when no more of the messages below the highest started one are started."""

    def __repr__(self) -> str:
        return f"<KeyedDelivery {self.process_queue}>"

    def deliver(self, messages: Sequence[Message]) -> None:
        """Messages that were just put into the process queue, in offset order."""
        for workers, share in self._table.split(messages):
            if workers is None:
                self._add_unmatched(share)
            else:
                self._lane(workers).add(share)
        self.look_soon()

    def _add_unmatched(self, messages: Sequence[Message]) -> None:
        topic = self.process_queue.message_queue.topic
        for workers, share in self._mode.unmatched(topic, messages):
            if workers is None:
                self.process_queue.finish_all(share)
                self.context.member.stats.count_unmatched(topic, len(share))
            else:
                self._lane(workers).add(share)

    def end(self, *, start_no_more: bool = False) -> None:
        """Withdraw what was not started, except what lies below a started message; it gets a second to start.

        So the committed offset passes all that was started, and the queue's next owner repeats nothing. Running calls
        go on. Messages that rest after a failure are not waited for.
        """
        if self.ended.done():
            if start_no_more:
                self._finish_no_more()
            return
        for lane in self._lanes.values():
            lane.end()
        if self.quarantine is not None:
            self.quarantine.give_up()
        # Not before: nothing is drained while it is open whether messages below a started one start still.
        self.ended.set_result(None)
        if self._asking is not None:
            self._asking.cancel()
        self.retries.close()
        is_paused = any(lane.workers.is_paused for lane in self._lanes.values())
        if not (is_paused or start_no_more or self.abandoned) and self.loop.time() < self.lease.certain_until:
            self._finish()
        self.check_drained()

    def _finish(self) -> None:
        not_started = {offset for lane in self._lanes.values() for offset in lane.keyed.not_started()}
        highest = self.process_queue.end_offset - 1
        while highest in not_started:
            highest -= 1
        self.process_queue.withdraw(highest + 1)
        for lane in self._lanes.values():
            lane.keyed.withdraw(highest + 1)
            lane.keyed.go_on()
            lane.hand_over()
        self._finishing = self.loop.call_later(RUN_ON, self._finish_no_more)

    def _finish_no_more(self) -> None:
        if self._finishing is not None:
            self._finishing.cancel()
            self._finishing = None
        for lane in self._lanes.values():
            lane.keyed.hold()
        self.check_drained()

    async def drained(self) -> None:
        """Returns when the running calls have ended. Call `end` first."""
        self.check_drained()
        await self._drained.wait()

    async def abandon(self) -> bool:
        """Cancel the running calls; whether they have ended. A thread goes on, and so may a handler."""
        self.abandoned = True
        self.end()
        self.end(start_no_more=True)
        await asyncio.gather(*(lane.cancel() for lane in self._lanes.values()))
        return not self._is_running()

    def discard(self) -> None:
        """The session is void: acknowledge nothing of it any more."""
        self.process_queue.close()
        self.abandoned = True
        self.end()
        self.end(start_no_more=True)

    # What lanes need.

    def look_soon(self) -> None:
        """Messages were finished, or may start: see to it once for all that happens in this turn of the loop."""
        if not self.is_scheduled:
            self.is_scheduled = True
            self.loop.call_soon(self._look)
        if self.ended.done():
            self.check_drained()

    def ask(self) -> None:
        """The lease is over: wait until the lock is certain again, or lost."""
        if self._asking is None and not self.ended.done():
            self._asking = self._mode.tasks.start(self._ask(), f"lock {self.process_queue.message_queue}")

    def check_drained(self) -> None:
        """After an end: nothing runs any more, and nothing is about to start."""
        if not self.ended.done() or self._drained.is_set():
            return
        if not any(lane.keyed.running or lane.keyed.startable for lane in self._lanes.values()):
            self._drained.set()
            self.retries.close()
            self._finish_no_more()

    def _is_running(self) -> bool:
        return any(lane.keyed.running for lane in self._lanes.values())

    def _lane(self, workers: Workers) -> Lane:
        known = self._lanes.get(id(workers))
        if known is None:
            known = self._lanes[id(workers)] = Lane(self, workers)
        return known

    def _look(self) -> None:
        self.is_scheduled = False
        if self.ended.done():
            if self._finishing is not None:
                self._go_on_finishing()
            return
        self.context.prompt(self.process_queue)
        if self.quarantine is not None:
            for lane in self._lanes.values():
                if lane.keyed.due:
                    lane.see_to_quarantined()
        lanes = [lane for lane in self._lanes.values() if lane.keyed.startable]
        if len(lanes) > 1 and not lanes[0].workers.is_paused and self.loop.time() < self.lease.certain_until:
            quick = [lane for lane in lanes if lane.workers.is_quick]
            lanes = [lane for lane in lanes if not lane.workers.is_quick]
            if self._run.begins(quick):
                self._mode.mixed.submit(self._run)
        for lane in lanes:
            lane.hand_over()

    def _go_on_finishing(self) -> None:
        if self.loop.time() >= self.lease.certain_until:
            self._finish_no_more()
        else:
            for lane in self._lanes.values():
                lane.hand_over()

    async def _ask(self) -> None:
        is_usable = await self._lock.usable()
        self._asking = None
        if self.ended.done():
            return
        for lane in self._lanes.values():
            lane.judge_uncertain(is_usable)
        if is_usable:
            self.look_soon()
        elif not self.over.done():
            self.over.set_result(None)


class KeyWatches:
    """Those of one group's handlers, over all their queues and sessions."""

    def __init__(self, group: str, observe: Observe) -> None:
        self._group, self._observe = group, observe
        self._by_handler: dict[tuple[str, str], MissingKeys] = {}

    def of(self, subscription: Subscription) -> MissingKeys | None:
        """What is to see the keys of a handler's messages; None when nothing is left to find out."""
        if not isinstance(subscription.order_by, str):
            return None
        key = (subscription.topic, subscription.expression)
        found = self._by_handler.get(key)
        if found is None:
            found = self._by_handler[key] = MissingKeys(partial(self._tell, subscription, subscription.order_by))
        return None if found.is_over else found

    def _tell(self, subscription: Subscription, name: str, count: int) -> None:
        self._observe(OrderKeyMissing(self._group, subscription.handler_name, subscription.topic, name, count))


class Lane:
    """The messages of one session for one handler; the completion of its endless work."""

    def __init__(self, delivery: KeyedDelivery, workers: Workers) -> None:
        self._delivery = delivery
        self.workers: Workers = workers
        self.keyed: Keyed[Message] = Keyed()
        handler = workers.handler
        self._handler = handler
        self._key_of: Callable[[Message], Hashable] = key_function(handler.subscription)
        self._missing: MissingKeys | None = delivery.key_watches.of(handler.subscription)
        """Sees the first keys; None once it has found out."""
        self._by_offset = ByOffset(delivery.process_queue, handler)
        self._finish = self._by_offset.done
        self._lease, self._now = delivery.lease, delivery.loop.time
        self._work = Work.endless(_Startable(self), self)
        self._work.record_of = delivery.record_of
        self._quarantine, self._retries = delivery.quarantine, delivery.retries
        self._uncertain: list[tuple[Message, object, bool]] = []
        """Calls that ended when the lease was over: what they returned or raised."""
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self.taker: Taker = Taker(workers, self)

    def add(self, messages: Sequence[Message]) -> None:
        """Messages that were pulled."""
        if self._missing is not None and self._missing.is_over:
            self._missing = None
        keyed, retries = self.keyed, self._retries
        key_of = self._key_of if self._missing is None else self._watched_key_of
        quarantine = self._quarantine if self._handler.runs_here else None
        for message in messages:
            try:
                key = key_of(message)
                hash(key)
            except Exception as error:
                problem = (
                    f"order_by= failed, so that its place is not known: {type(error).__name__}: {text_of(error, '')}"
                )
                self._refuse(message, object(), Failure("OrderBy", problem))
                continue
            if retries.earlier and retries.is_exhausted(self._handler, message):
                reason = f"the lock of its queue was lost during the last of {message.reconsume_times} attempts"
                if self._refuse(message, key, Failure("LockLost", reason)):
                    continue
            if quarantine and message in quarantine:
                keyed.quarantined.add(message.offset)
            keyed.add(message, key)

    def _watched_key_of(self, message: Message) -> Hashable:
        key = self._key_of(message)
        if self._missing is not None:
            self._missing.saw(key)
        return key

    def see_to_quarantined(self) -> None:
        """Messages that may have ended a process start when they have their turn, or are dead letters."""
        quarantine, retries = self._quarantine, self._retries
        due, self.keyed.due = self.keyed.due, []
        for message in due:
            if quarantine is None:
                return
            if (dead := quarantine.dead_letter_of(message, self._handler)) is not None:
                failure = Failure("DeadLetter", dead.reason, dead=True)
                stored = retries.send_to_dlq(self._handler, message, failure)
                stored.add_done_callback(partial(self._dead_letter_stored, message))
                continue
            retries.failed[message.offset] = message.reconsume_times
            quarantine.add(message, self._handler, partial(self._start_in_turn, message))

    def _start_in_turn(self, message: Message) -> None:
        self.keyed.quarantined.discard(message.offset)
        self.keyed.start_again(message)
        self.hand_over()

    def hand_over(self) -> None:
        """Have what may start started, once the lease is certain."""
        if not self.keyed.startable:
            return
        if self._now() < self._lease.certain_until:
            self.workers.submit(self._work)
        else:
            self._delivery.ask()

    def end(self) -> None:
        """Start nothing more, and forget what rests: the queue's next owner gets it again."""
        self.keyed.hold()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.judge_uncertain(None)

    async def cancel(self) -> None:
        """Cancel the running calls of this session."""
        queue, has = self._delivery.process_queue.message_queue, self.keyed.has
        await self.workers.cancel(lambda item: item.queue == queue and has(item))

    # What workers report, on the loop.

    def done(self, message: Message) -> None:
        """The handler returned None."""
        if self._quarantine is not None and self._quarantine.has_turn(message):
            self._quarantine.ended(message)
        if self._now() >= self._lease.certain_until:
            self._note_uncertain(message, None, False)
            return
        self._finish(message)
        if self._retries.failed:
            self._retries.done(message)
        self.keyed.release(message)
        delivery = self._delivery
        if not delivery.is_scheduled or delivery.ended.done():
            delivery.look_soon()

    def done_all(self, messages: Sequence[Message]) -> None:
        """The same for several messages."""
        for message in messages:
            self.done(message)

    def judge(self, item: Any, result: object, raised: bool) -> None:
        """Decide about a returned value or an exception."""
        message: Message = item
        if self._quarantine is not None and self._quarantine.has_turn(message):
            self._quarantine.ended(message)
        is_ours = self._delivery.abandoned and isinstance(result, asyncio.CancelledError)
        if is_ours or self._delivery.process_queue.closed:
            self._leave(message)
        elif self._now() >= self._lease.certain_until:
            self._note_uncertain(message, result, raised)
        else:
            self._settle(message, result, raised)

    def judge_uncertain(self, is_usable: bool | None) -> None:
        """Decide about calls that ended uncertain: the lock was ours all the time, or was lost; None: not known."""
        uncertain, self._uncertain = self._uncertain, []
        for message, result, raised in uncertain:
            if is_usable:
                self.judge(message, result, raised)
                continue
            if is_usable is False:
                # Another member may have had the queue meanwhile. The attempt counts all the same: a handler that
                # blocks the loop for longer than its lock lives would block it for ever.
                self._retries.count_attempt(message)
            self._leave(message)

    def release(self, message: Message) -> None:
        """It is finished: the next one of its key may start."""
        self.keyed.release(message)
        self._delivery.look_soon()

    def _settle(self, message: Message, result: object, raised: bool) -> None:
        delivery, retries = self._delivery, self._retries
        failures = self._by_offset.settle(message, result, raised)
        if not failures:
            retries.done(message)
            self.release(message)
            return
        ((_, failure),) = failures
        self.keyed.rest(message)
        delay = retries.delay_after(self._handler, message, failure)
        if delay is None:
            stored = retries.send_to_dlq(self._handler, message, failure)
            stored.add_done_callback(partial(self._dead_letter_stored, message))
        elif delivery.ended.done():
            pass  # it rests: the queue's next owner has it
        else:
            self._timers[message.offset] = delivery.loop.call_later(delay, self._again, message, not failure.parked)
        delivery.check_drained()

    def _again(self, message: Message, is_counted: bool) -> None:
        self._timers.pop(message.offset, None)
        if is_counted:
            self._retries.count_attempt(message)
        self.keyed.start_again(message)
        self._delivery.look_soon()

    def _note_uncertain(self, message: Message, result: object, raised: bool) -> None:
        if self._delivery.ended.done():
            self._leave(message)
        else:
            self._uncertain.append((message, result, raised))
            self._delivery.ask()

    def _leave(self, message: Message) -> None:
        """It is not acknowledged, and not started again in this session."""
        self.keyed.rest(message)
        self._delivery.check_drained()

    def _dead_letter_stored(self, message: Message, _stored: object) -> None:
        """A broker has stored it as a dead letter."""
        if self._quarantine is not None:
            self._quarantine.ended(message)
        self._retries.done(message)
        self.release(message)

    def _refuse(self, message: Message, key: Hashable, failure: Failure) -> bool:
        """Send it to the dead letters without a call; False when another one of its key comes first."""
        if not self.keyed.add_resting(message, key):
            return False
        stored = self._retries.send_to_dlq(self._handler, message, failure)
        stored.add_done_callback(partial(self._dead_letter_stored, message))
        return True


class _RunOfMany(Iterator[tuple[Taker, Message]]):
    """What may start of many handlers, as long as the lease is certain: one worker walks through it."""

    def __init__(self, delivery: KeyedDelivery) -> None:
        self._delivery, self._lease, self._now = delivery, delivery.lease, delivery.loop.time
        self._lanes: deque[Lane] = deque()
        self._is_walked = False
        self.items: Iterator[tuple[Taker, Message]] = self
        self.finish: Callable[[list[Message]], None] | None = None
        self.record_of: Callable[[int, int], bytes] | None = delivery.record

    def begins(self, lanes: Sequence[Lane]) -> bool:
        """Whether a walk through these lanes begins: not while one is under way, after which it is looked again."""
        if self._is_walked or not lanes:
            return False
        self._lanes, self._is_walked = deque(lanes), True
        return True

    def __next__(self) -> tuple[Taker, Message]:
        lanes = self._lanes
        while lanes and self._now() < self._lease.certain_until:
            lane = lanes[0]
            if lane.keyed.startable:
                lanes.rotate(-1)  # a handler with a backlog holds up no other one
                return lane.taker, lane.keyed.startable.popleft()
            lanes.popleft()
        raise StopIteration

    def noted(self, note: Note) -> Iterator[tuple[Taker, Message]]:
        """The messages, each noted down as it starts."""
        for taker, message in self:
            if self.record_of is not None:
                note.write(self.record_of(message.offset, message.offset))
            yield taker, message

    @property
    def may_go_on(self) -> bool:
        """The topic is not paused, and no handler has begun calls of its own meanwhile."""
        return all(lane.workers.is_quick and not lane.workers.is_paused for lane in self._lanes)

    @property
    def left(self) -> int:
        """A walk takes some, and another one is begun for what may start then."""
        return 0

    def give_back(self) -> None:
        """The walk is over: what may start is seen to again."""
        self._lanes.clear()
        self._is_walked = False
        self._delivery.look_soon()


class _Startable(Iterator[Message]):
    """What workers draw from: messages that may start, as long as the lease is certain. Threads draw as well."""

    __slots__ = ("_delivery", "_lease", "_now", "_startable")

    def __init__(self, lane: Lane) -> None:
        self._delivery = lane._delivery
        self._lease: Lease = lane._lease
        self._now = lane._now
        self._startable: deque[Message] = lane.keyed.startable

    def __next__(self) -> Message:
        if self._now() >= self._lease.certain_until:
            if self._startable:
                self._delivery.loop.call_soon_threadsafe(self._delivery.look_soon)
            raise StopIteration
        try:
            return self._startable.popleft()
        except IndexError:
            raise StopIteration from None

    def __length_hint__(self) -> int:
        if self._now() < self._lease.certain_until:
            return len(self._startable)
        if self._startable:
            # Workers leave it alone, as if it were empty: it is handed over again when the lease is certain.
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._delivery.loop.call_soon_threadsafe(self._delivery.look_soon)
        return 0
