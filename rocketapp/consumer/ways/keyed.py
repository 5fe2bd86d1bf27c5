"""The keyed way: messages of one queue in order per key, many keys at once, under a lock that a broker holds.

One `KeyedWay` per group owns the workers of all its handlers; `keyed_delivery` has the messages of one session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.stats import GroupStats
from rocketapp.consumer.ways.delivery import Prompt, QueueLock, no_prompt
from rocketapp.consumer.ways.keyed_delivery import KeyedContext, KeyedDelivery
from rocketapp.consumer.ways.retries_in_place import RetryContext
from rocketapp.consumer.workers.of_handlers import WorkersOfHandlers
from rocketapp.consumer.workers.threads import MakeThreads, Threads
from rocketapp.model.event import Observe
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


class KeyedWay:
    """Calls the handlers with `order_by=` of one group."""

    needs_lock = True
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
    ) -> None:
        """`prompt` is called when messages of a queue were finished; `threads(name, most)` makes threads.

        `crashes`: where is noted down what is in hand; None: nowhere.
        """
        self._workers = WorkersOfHandlers(observe, threads, crashes)
        self._context = KeyedContext(stats, retries, prompt, self._workers.tasks, crashes)
        self._tables = self._workers.tables(topic for topic in topics if topic.is_keyed)

    def open(self, process_queue: ProcessQueue[Message], lock: QueueLock | None) -> KeyedDelivery:
        """The delivery of a new session under this lock."""
        if lock is None:
            raise ValueError(f"{process_queue} is consumed in order: it needs a lock")
        return KeyedDelivery(process_queue, lock, self._tables[process_queue.message_queue.topic], self._context)

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """With a span: one key that is retried holds up the committed offset of all others."""
        return QueueLimits(config.queue_max_messages, config.queue_max_bytes, config.queue_max_span)

    def in_hand(self) -> list[tuple[Handler, Any]]:
        """Every running call: its handler, and the message that it works on."""
        return self._workers.in_hand()

    async def stop(self) -> None:
        """Start nothing more, and cancel what can be cancelled."""
        await self._workers.stop()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        self._workers.halt()
