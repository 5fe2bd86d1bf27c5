"""Failed messages of concurrent handlers are sent back to the broker, which delivers them again later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.retry.breaker import Stopping
from rocketapp.consumer.rollout.forward import Failures
from rocketapp.consumer.ways.by_offset import ByOffset
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


class SentBack(ByOffset):
    """Acknowledges by offset; failed messages are sent back, or kept when their topic is stopped."""

    __slots__ = ("_keep", "_redelivery", "_stopping")

    def __init__(
        self,
        process_queue: ProcessQueue[Message],
        handler: Handler,
        keep: Callable[[Message], None],
        *,
        redelivery: Failures,
        stopping: Stopping,
    ) -> None:
        """`keep` takes a message that is started again when its topic is resumed."""
        super().__init__(process_queue, handler)
        self._keep, self._redelivery, self._stopping = keep, redelivery, stopping

    def judge(self, item: Any, result: object, raised: bool) -> None:
        """Acknowledge what one call has done, and send the other messages back."""
        if self._process_queue.closed:
            return  # the next owner of the queue gets them again
        for message, failure in self.settle(item, result, raised):
            self._stopping.failed(self._handler, failure)
            if failure.stop:
                self._keep(message)
            else:
                self._redelivery.fail(self._handler, self._process_queue, message, failure)
