"""The orderly way: messages of one queue one by one, under a lock that a broker holds for the group."""

from __future__ import annotations

from collections.abc import Iterable

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.rollout.forward import Unmatched
from rocketapp.consumer.ways.context import WayContext
from rocketapp.consumer.ways.delivery import QueueLock, lock_for
from rocketapp.consumer.ways.orderly_delivery import OrderlyDelivery
from rocketapp.consumer.ways.serial_way import SerialWay
from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.tag_table import TagTable
from rocketapp.wire.record import Message


class OrderlyWay(SerialWay):
    """Calls the orderly handlers of one group."""

    def __init__(self, topics: Iterable[ConsumedTopic], context: WayContext) -> None:
        super().__init__(context)
        self._unmatched = Unmatched(context.forwarding, self.new_executor)
        self._tables = {
            topic.topic: TagTable((self.new_executor(each), each.subscription.tags) for each in topic.handlers)
            for topic in topics
        }

    def open(
        self, process_queue: ProcessQueue[Message], lock: QueueLock | None, _flow: object = None
    ) -> OrderlyDelivery:
        """The delivery of a new session under this lock."""
        lock = lock_for(process_queue, lock, needs_lock=self.needs_lock)
        return OrderlyDelivery(
            process_queue, lock, self._tables[process_queue.message_queue.topic], self._unmatched, self
        )

    def limits(self, config: ConsumerConfig) -> QueueLimits:
        """No span: the lowest unfinished message is the only one that runs."""
        return QueueLimits(
            config.queue_max_messages,
            config.queue_max_bytes,
            max_span=None,
            topic_messages=config.topic_max_messages,
            topic_bytes=config.topic_max_bytes,
        )
