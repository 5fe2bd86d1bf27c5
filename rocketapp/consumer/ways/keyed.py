"""The keyed way: messages of one queue in order per key, many keys at once, under a lock that a broker holds.

One `KeyedWay` per group owns the workers of all its handlers; `keyed_delivery` has the messages of one session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.quarantine import QueueQuarantine
from rocketapp.consumer.ways.by_workers import WayByWorkers
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import QueueLock, lock_for
from rocketapp.consumer.ways.keyed_lane import KeyWatches, Lane
from rocketapp.consumer.ways.retries_in_place import RetriesInPlace
from rocketapp.consumer.workers.of_handlers import WorkersOfHandlers
from rocketapp.consumer.workers.work import Workers
from rocketapp.state.handover import RUN_ON
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message


class KeyedWay(WayByWorkers):
    """Calls the handlers with `order_by=` of one group."""

    run_on: float | None = None

    def __init__(self, topics: Iterable[ConsumedTopic], context: WayContext) -> None:
        self.context: WayContext = context
        self.needs_lock: bool = not context.member.broadcast
        workers = WorkersOfHandlers(context.member, context.threads, context.journal)
        super().__init__(workers, context.forwarding)
        self.tasks: Tasks = workers.tasks
        self.key_watches: KeyWatches = KeyWatches(context.member.name, context.member.observe)
        self._tables = workers.tables(topics)

    def open(self, process_queue: ProcessQueue[Message], lock: QueueLock | None, _flow: object = None) -> KeyedDelivery:
        """The delivery of a new session under this lock."""
        lock = lock_for(process_queue, lock, needs_lock=self.needs_lock)
        return KeyedDelivery(process_queue, lock, self._tables[process_queue.message_queue.topic], self)


class KeyedDelivery:
    """The messages of one session on their way, one at a time per key."""

    def __init__(
        self, process_queue: ProcessQueue[Message], lock: QueueLock, table: TagTable[Workers], way: KeyedWay
    ) -> None:
        self.process_queue: ProcessQueue[Message] = process_queue
        self.lease: Lease = lock.lease
        self._way = way
        self.context: WayContext = way.context
        self._lock, self._table = lock, table
        self.loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = self.loop.create_future()
        """Done when the lock is lost."""
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.abandoned: bool = False
        """Cancellations of running calls are ours."""
        self.key_watches: KeyWatches = way.key_watches
        self.retries: RetriesInPlace = RetriesInPlace(process_queue, self.ended, way.context)
        journal, group = way.context.journal, way.context.member.name
        self.record_of: Callable[[Message], bytes] | None = None
        self.quarantine: QueueQuarantine | None = None
        if journal is not None:
            self.record_of = journal.recorder(group, process_queue.message_queue)
            self.quarantine = QueueQuarantine(journal, way.context.member, process_queue) or None
        self._lanes: dict[int, Lane] = {}
        self._is_scheduled = False
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
        for workers, share in self._way.unmatched(topic, messages):
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
        if not self._is_scheduled:
            self._is_scheduled = True
            self.loop.call_soon(self._look)

    def ask(self) -> None:
        """The lease is over: wait until the lock is certain again, or lost."""
        if self._asking is None and not self.ended.done():
            self._asking = self._way.tasks.start(self._ask(), f"lock {self.process_queue.message_queue}")

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
        self._is_scheduled = False
        if self.ended.done():
            if self._finishing is not None:
                self._go_on_finishing()
            return
        self.context.prompt(self.process_queue)
        for lane in self._lanes.values():
            if lane.keyed.due:
                lane.see_to_quarantined()
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
