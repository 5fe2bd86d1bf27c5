"""Failed messages of concurrent handlers are sent back to the broker, which delivers them again later."""

from __future__ import annotations

from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.consumer.ways.by_offset import ByOffset
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


class SentBack(ByOffset):
    """Acknowledges by offset; failed messages are sent back."""

    __slots__ = ("_redelivery",)

    def __init__(self, process_queue: ProcessQueue[Message], handler: Handler, redelivery: Redelivery) -> None:
        super().__init__(process_queue, handler)
        self._redelivery = redelivery

    def judge(self, item: Any, result: object, raised: bool) -> None:
        """Acknowledge what one call has done, and send the other messages back."""
        if self._process_queue.closed:
            return  # the next owner of the queue gets them again
        for message, failure in self.settle(item, result, raised):
            self._redelivery.fail(self._handler, self._process_queue, message, failure)
