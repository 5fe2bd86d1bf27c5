"""Pulled messages → works for the handlers that want them, many at once.

One `Concurrently` per group owns the workers of all its handlers. Each assignment gets a
delivery of its own, which remembers the works it has given out: when the queue is given
up, what nobody has started is withdrawn, except what lies below something that was
started. So the committed offset passes everything that was ever started.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.stats import HandlerStats
from rocketapp.consumer.ways.outcomes import failures_of
from rocketapp.consumer.workers.async_workers import AsyncWorkers
from rocketapp.consumer.workers.batches import Batches
from rocketapp.consumer.workers.thread_workers import ThreadWorkers
from rocketapp.consumer.workers.work import Work
from rocketapp.model.event import Observe
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message

Workers = AsyncWorkers | ThreadWorkers
Unmatched = Callable[[str, int], None]
"""(topic, how many messages of it no handler wants)"""


class Concurrently:
    """Calls the handlers of one group, many messages at once."""

    def __init__(
        self,
        topics: Iterable[ConsumedTopic],
        all_stats: Mapping[int, HandlerStats],
        *,
        redelivery: Redelivery,
        unmatched: Unmatched,
        observe: Observe,
    ) -> None:
        """`all_stats`: one per handler, by the handler's id.

        Orderly topics are here too: what comes back through the retry topic has lost its order anyway.
        """
        self._redelivery, self._unmatched, self._observe = redelivery, unmatched, observe
        self._tasks = Tasks(observe)
        self._workers: list[Workers] = []
        self._tables = {
            topic.topic: TagTable(
                (self._workers_of(all_stats[id(handler)]), handler.subscription.tags) for handler in topic.handlers
            )
            for topic in topics
        }

    def _workers_of(self, stats: HandlerStats) -> Workers:
        if stats.handler.subscription.is_async:
            self._workers.append(AsyncWorkers(stats, self._settle, self._tasks))
        else:
            self._workers.append(ThreadWorkers(stats, self._settle, self._observe))
        return self._workers[-1]

    def open(self, queue: ProcessQueue[Message], topic: str | None) -> ConcurrentDelivery:
        """The delivery of a new assignment; `topic` None: a retry queue, whose messages belong to any topic."""
        return ConcurrentDelivery(queue, topic, self._tables, self._unmatched)

    def in_hand(self) -> list[tuple[HandlerStats, Any]]:
        """What every worker works on."""
        return [(each.stats, item) for each in self._workers for item in each.in_hand() if item is not None]

    async def stop(self) -> None:
        """Start nothing more; cancel what can be cancelled."""
        await asyncio.gather(*(workers.stop() for workers in self._workers))
        await self._tasks.close()

    def _settle(
        self, stats: HandlerStats, queue: ProcessQueue[Message], item: Any, result: object, raised: bool
    ) -> None:
        """The way that is not fast: batches, returned outcomes, failures."""
        if queue.closed:
            return  # given up meanwhile: neither acknowledged nor sent back, somebody else gets it
        messages: list[Message] = [item] if isinstance(item, Message) else item
        done = []
        failures = failures_of(result, raised, messages, stats.handler.subscription)
        for message, failure in zip(messages, failures, strict=True):
            if failure is None:
                done.append(message)
            else:
                self._redelivery.fail(stats, queue, message, failure)
        stats.handled += len(done)
        queue.finish_all(done)


class ConcurrentDelivery:
    """The messages of one assignment on their way to workers."""

    def __init__(
        self,
        queue: ProcessQueue[Message],
        topic: str | None,
        tables: Mapping[str, TagTable[Workers]],
        unmatched: Unmatched,
    ) -> None:
        self._queue, self._topic = queue, topic
        self._tables, self._unmatched = tables, unmatched
        self._works: deque[tuple[Workers, Work]] = deque()
        self._started_to = -1
        self._batches: dict[int, tuple[Workers, Batches]] = {}

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

    def end(self) -> None:
        """Withdraw what nobody has started, except what lies below something that was started."""
        left: list[tuple[Workers, list[Message]]] = []
        for workers, work in self._works:
            items, started_to = work.withdraw()
            self._started_to = max(self._started_to, started_to)
            left.append((workers, items if workers.batch is None else list(chain.from_iterable(items))))
        self._works.clear()
        for workers, batches in self._batches.values():
            left.append((workers, batches.close()))
        dropped: list[int] = []
        for workers, messages in left:
            needed = [message for message in messages if message.offset <= self._started_to]
            dropped += (message.offset for message in messages if message.offset > self._started_to)
            if needed and not self._queue.closed:
                self._submit(workers, needed if workers.batch is None else [needed])
        if dropped:
            self._queue.withdraw(min(dropped))

    async def drained(self) -> None:
        """Returns when everything that was started has been finished; after `end`."""
        event, queue = asyncio.Event(), self._queue

        def look() -> None:
            if not len(queue):
                event.set()

        queue.watch(look)
        try:
            look()
            await event.wait()
        finally:
            queue.unwatch(look)

    def discard(self) -> None:
        """Nobody waits any more for anything of it: nothing more of it is started."""
        self._queue.close()
        self.end()

    def _give(self, topic: str, messages: Sequence[Message]) -> None:
        table = self._tables.get(topic)
        shares = [(None, messages)] if table is None else table.split(messages)
        for workers, share in shares:
            if workers is None:
                self._queue.finish_all(share)
                self._unmatched(topic, len(share))
            elif workers.batch is not None:
                self._batches_of(workers, *workers.batch).add(share)
            else:
                self._submit(workers, list(share))

    def _batches_of(self, workers: Workers, most: int, wait: float) -> Batches:
        known = self._batches.get(id(workers))
        if known is None:
            known = workers, Batches(most, wait, lambda found: self._submit(workers, [found]))
            self._batches[id(workers)] = known
        return known[1]

    def _submit(self, workers: Workers, items: list[Any]) -> None:
        works = self._works
        while works and not works[0][1].left:
            self._started_to = max(self._started_to, works.popleft()[1].last_offset)
        work = Work(self._queue, items)
        works.append((workers, work))
        workers.submit(work)
