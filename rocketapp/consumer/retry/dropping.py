"""Failed messages of a broadcast group are dropped: it has no retry topic, and no dead letters.

A copy that came back would come to every member, also to those that have handled the message.
"""

from __future__ import annotations

import asyncio

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.retry.counts import count_dropped
from rocketapp.consumer.retry.job import Acknowledgement
from rocketapp.model.event import Observe
from rocketapp.state.redelivery import Failure
from rocketapp.wire.record import Message


class Dropping:
    """Drops failed messages of one group (retry.failed_messages.FailedMessages): each is told once, and counted."""

    due_until: float = 0.0

    def __init__(self, group: str, observe: Observe) -> None:
        self._group, self._observe = group, observe

    def __repr__(self) -> str:
        return f"<Dropping {self._group}>"

    def fail(self, handler: Handler, queue: Acknowledgement, message: Message, failure: Failure) -> None:
        """A handler failed on this message: it is done all the same."""
        queue.finish(message)
        count_dropped(handler, message, failure, group=self._group, observe=self._observe)

    def send_to_dlq(
        self, handler: Handler, queue: Acknowledgement, message: Message, failure: Failure
    ) -> asyncio.Future[None]:
        """An orderly handler has no attempt left. Done at once."""
        self.fail(handler, queue, message, failure)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def stop(self) -> None:
        """Nothing waits."""
