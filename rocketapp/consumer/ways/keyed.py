"""The keyed way: messages of one queue in order per key, many keys at once, under a lock that a broker holds.

One `KeyedWay` per group owns the workers of all its handlers; `keyed_delivery` has the messages of one session.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.ways.by_workers import WayByWorkers
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import QueueLock, lock_for
from rocketapp.consumer.ways.key_watches import KeyWatches
from rocketapp.consumer.ways.keyed_delivery import KeyedContext, KeyedDelivery
from rocketapp.consumer.workers.of_handlers import WorkersOfHandlers
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


class KeyedWay(WayByWorkers):
    """Calls the handlers with `order_by=` of one group."""

    run_on: float | None = None

    def __init__(self, topics: Iterable[ConsumedTopic], context: WayContext) -> None:
        self.needs_lock: bool = context.locked
        stats, retries, crashes = context.stats, context.retries, context.crashes
        super().__init__(
            WorkersOfHandlers(context.observe, context.threads, context.pausing, crashes), context.forwarding
        )
        watches = KeyWatches(context.group, context.observe)
        self._context = KeyedContext(
            stats, retries, context.prompt, self._workers.tasks, watches, self.unmatched, context.stall_reasons, crashes
        )
        self._tables = self._workers.tables(topics)

    def open(self, process_queue: ProcessQueue[Message], lock: QueueLock | None, _flow: object = None) -> KeyedDelivery:
        """The delivery of a new session under this lock."""
        lock = lock_for(process_queue, lock, needs_lock=self.needs_lock)
        return KeyedDelivery(process_queue, lock, self._tables[process_queue.message_queue.topic], self._context)
