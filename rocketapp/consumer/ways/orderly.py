"""The orderly way: messages of one queue one by one, under a lock that a broker holds for the group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.crashes import Crashes
from rocketapp.consumer.elsewhere import Elsewhere, Unmatched
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.consumer.pull.puller import Decode
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.consumer.stats import GroupStats
from rocketapp.consumer.ways.delivery import NewQueue, Prompt, QueueLock, lock_for, no_prompt
from rocketapp.consumer.ways.orderly_delivery import OrderlyContext, OrderlyDelivery
from rocketapp.consumer.ways.retries_in_place import RetryContext
from rocketapp.consumer.workers.rated import rated_serial
from rocketapp.consumer.workers.serial import SerialExecutor, SerialInThreads, SerialOnLoop
from rocketapp.consumer.workers.threads import MakeThreads, Threads
from rocketapp.model.event import Observe
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.tag_table import TagTable
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message, decode_records


class OrderlyWay:
    """Calls the orderly handlers of one group."""

    run_on: float | None = None
    decode: Decode = staticmethod(decode_records)
    new_queue: NewQueue = ProcessQueue

    def __init__(
        self,
        topics: Iterable[ConsumedTopic],
        *,
        group: str,
        stats: GroupStats,
        retries: RetryContext,
        observe: Observe,
        prompt: Prompt = no_prompt,
        threads: MakeThreads = Threads,
        crashes: Crashes | None = None,
        elsewhere: Elsewhere | None = None,
        locked: bool = True,
    ) -> None:
        """`prompt` is called after every run of messages of a queue; `threads(name, most)` makes threads.

        `crashes`: where is noted down what is in hand; None: nowhere.

        `locked`: its queues are another member's at other times. Otherwise each member consumes them for itself.
        """
        self.needs_lock: bool = locked
        self.waits: StallReasons = StallReasons(group, observe, asyncio.get_running_loop().time)
        """Queues that wait for a free call of their handler. They are pulled all the same."""
        unmatched = Unmatched(elsewhere, self._executor)
        self._context = OrderlyContext(
            stats, retries, prompt, tasks=Tasks(observe), waits=self.waits, unmatched=unmatched, crashes=crashes
        )
        self._threads = threads
        self._executors: list[SerialExecutor] = []
        self._tables = {
            topic.topic: TagTable((self._executor(each), each.subscription.tags) for each in topic.handlers)
            for topic in topics
            if topic.orderly
        }

    def _executor(self, handler: Handler) -> SerialExecutor:
        is_async = handler.subscription.is_async
        executor = SerialOnLoop(handler) if is_async else SerialInThreads(handler, self._threads)
        self._executors.append(rated_serial(executor))
        return self._executors[-1]

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
