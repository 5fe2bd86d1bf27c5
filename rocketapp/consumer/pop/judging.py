"""What becomes of popped messages whose handler has ended: acknowledged, hidden until their retry, or dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.pop.context import PopContext
from rocketapp.consumer.pop.hiding import Hiding
from rocketapp.consumer.retry.redelivery import count_retry
from rocketapp.consumer.ways.by_offset import ByOffset
from rocketapp.consumer.ways.delivery import Keep
from rocketapp.state.policy import delay_before
from rocketapp.state.pop_queue import PopQueue
from rocketapp.state.redelivery import Dead, Failure, concurrent_step
from rocketapp.state.retry_times import LATE
from rocketapp.wire.record import Message


class Judging(ByOffset):
    """Acknowledges messages one by one: offsets mean nothing here."""

    __slots__ = ("_comes_again", "_context", "_hiding", "_keep", "_now", "_queue")

    def __init__(
        self,
        queue: PopQueue[Message],
        handler: Handler,
        keep: Keep,
        *,
        hiding: Hiding,
        comes_again: Callable[[float], None],
        context: PopContext,
    ) -> None:
        """`keep` takes a message that is started again when its topic is resumed.

        `comes_again(at)` is told when a failed message comes again, in the loop's time.
        """
        super().__init__(queue, handler)
        self._queue, self._keep = queue, keep
        self._hiding, self._comes_again, self._context = hiding, comes_again, context
        self._now = asyncio.get_running_loop().time

    def judge(self, item: Any, result: object, raised: bool) -> None:
        """Acknowledge what one call has done; the other messages come again, or are dead."""
        for message, failure in self.settle(item, result, raised):
            self._context.stopping.failed(self._handler, failure)
            if failure.stop:
                self._keep(message)
            else:
                self._fail(message, failure)

    def _fail(self, message: Message, failure: Failure) -> None:
        about, times = self._handler.subscription, message.reconsume_times
        delay = delay_before(about.retry, times)
        step = concurrent_step(failure, reconsume_times=times, retries=about.retries, delay=delay)
        context, handler = self._context, self._handler
        if isinstance(step, Dead):
            # It is acknowledged when its copy is stored, and stays hidden until then.
            context.redelivery.send_to_dlq(handler, self._queue, message, failure)
            return

        def settled() -> None:
            at = self._now() + step.delay
            self._comes_again(at)
            context.redelivery.due_until = max(context.redelivery.due_until, at + LATE)
            count_retry(context.member, handler, message, failure, step.delay)

        self._hiding.until_retry(message, step.delay, settled)
