"""The orderly way: messages of one queue one by one, under a lock that a broker holds for the group."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.elsewhere import Unmatched
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import QueueLock, lock_for
from rocketapp.consumer.ways.orderly_delivery import OrderlyContext, OrderlyDelivery
from rocketapp.consumer.ways.pulled import Pulled
from rocketapp.consumer.workers.rated import RatedSerial
from rocketapp.consumer.workers.serial import SerialExecutor, SerialInThreads, SerialOnLoop
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message


class OrderlyWay(Pulled):
    """Calls the orderly handlers of one group."""

    run_on: float | None = None

    def __init__(self, topics: Iterable[ConsumedTopic], context: WayContext) -> None:
        self.needs_lock: bool = context.locked
        self._context = OrderlyContext(
            context.stats,
            context.retries,
            context.prompt,
            tasks=Tasks(context.observe),
            waits=context.waits,
            unmatched=Unmatched(context.elsewhere, self._executor),
            crashes=context.crashes,
        )
        self._threads = context.threads
        self._executors: list[SerialExecutor] = []
        self._rated: list[RatedSerial] = []
        """Those among them that have a rate."""
        self._tables = {
            topic.topic: TagTable((self._executor(each), each.subscription.tags) for each in topic.handlers)
            for topic in topics
        }

    def _executor(self, handler: Handler) -> SerialExecutor:
        executor: SerialExecutor
        is_async, rate = handler.subscription.is_async, handler.subscription.rate
        executor = SerialOnLoop(handler) if is_async else SerialInThreads(handler, self._threads)
        if rate is not None:
            executor = rated = RatedSerial(executor, rate)
            self._rated.append(rated)
        self._executors.append(executor)
        return executor

    def open(self, process_queue: ProcessQueue[Message], lock: QueueLock | None) -> OrderlyDelivery:
        """The delivery of a new session under this lock."""
        lock = lock_for(process_queue, lock, needs_lock=self.needs_lock)
        return OrderlyDelivery(process_queue, lock, self._tables[process_queue.message_queue.topic], self._context)

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """No span: the lowest unfinished message is the only one that runs."""
        return QueueLimits(
            config.queue_max_messages,
            config.queue_max_bytes,
            max_span=None,
            topic_messages=config.topic_max_messages,
            topic_bytes=config.topic_max_bytes,
        )

    def in_hand(self) -> list[tuple[Handler, Any]]:
        """Every running call: its handler, and the message or batch that it works on."""
        return [hand for delivery in self._context.deliveries if (hand := delivery.in_hand()) is not None]

    def pace(self, handler: Handler, concurrency: int, rate: float | None) -> None:
        """Run this many calls of a handler at once, and start this many of its messages a second if it has a rate."""
        for executor in self._executors:
            if executor.handler is handler:
                executor.resize(concurrency)
        for rated in self._rated:
            if rated.handler is handler and rate is not None:
                rated.change_rate(rate)

    async def stop(self) -> None:
        """Cancel what can be cancelled."""
        for delivery in list(self._context.deliveries):
            delivery.abandon_soon()
        await self._context.tasks.close()
        for executor in self._executors:
            executor.stop()

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        for delivery in self._context.deliveries:
            delivery.abandon_soon()
        for executor in self._executors:
            executor.halt()
