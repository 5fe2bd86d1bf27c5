"""The keyed way: messages of one queue in order per key, many keys at once, under a lock that a broker holds.

One `KeyedWay` per group owns the workers of all its handlers; `keyed_delivery` has the messages of one session.
"""

from __future__ import annotations

from collections.abc import Iterable

from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.elsewhere import Elsewhere
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.stats import GroupStats
from rocketapp.consumer.ways.by_workers import WayByWorkers
from rocketapp.consumer.ways.delivery import Prompt, QueueLock, lock_for, no_prompt
from rocketapp.consumer.ways.key_watches import KeyWatches
from rocketapp.consumer.ways.keyed_delivery import KeyedContext, KeyedDelivery
from rocketapp.consumer.ways.retries_in_place import RetryContext
from rocketapp.consumer.workers.of_handlers import WorkersOfHandlers
from rocketapp.consumer.workers.threads import MakeThreads, Threads
from rocketapp.model.event import Observe
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


class KeyedWay(WayByWorkers):
    """Calls the handlers with `order_by=` of one group."""

    run_on: float | None = None

    def __init__(
        self,
        topics: Iterable[ConsumedTopic],
        *,
        stats: GroupStats,
        retries: RetryContext,
        observe: Observe,
        prompt: Prompt = no_prompt,
        threads: MakeThreads = Threads,
        crashes: Crashes | None = None,
        elsewhere: Elsewhere | None = None,
        locked: bool = True,
    ) -> None:
        """`prompt` is called when messages of a queue were finished; `threads(name, most)` makes threads.

        `crashes`: where is noted down what is in hand; None: nowhere.

        `locked`: its queues are another member's at other times. Otherwise each member consumes them for itself.
        """
        self.needs_lock: bool = locked
        super().__init__(WorkersOfHandlers(observe, threads, crashes), elsewhere)
        key_watches = KeyWatches(retries.group, observe)
        self._context = KeyedContext(stats, retries, prompt, self._workers.tasks, key_watches, self.unmatched, crashes)
        self._tables = self._workers.tables(topic for topic in topics if topic.is_keyed)

    def open(self, process_queue: ProcessQueue[Message], lock: QueueLock | None) -> KeyedDelivery:
        """The delivery of a new session under this lock."""
        lock = lock_for(process_queue, lock, needs_lock=self.needs_lock)
        return KeyedDelivery(process_queue, lock, self._tables[process_queue.message_queue.topic], self._context)
