"""What becomes of the failed messages of one group: a `Redelivery` hands them back, a broadcast group drops them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.retry.job import Acknowledgement
from rocketapp.state.redelivery import Failure
from rocketapp.wire.record import Message


class TakesFailures(Protocol):
    """Takes messages that concurrent handlers have failed on."""

    def fail(self, handler: Handler, queue: Acknowledgement, message: Message, failure: Failure) -> None:
        """A concurrent handler failed on this message."""
        ...


class FailedMessages(TakesFailures, Protocol):
    """Takes messages that ways of consuming have failed on."""

    due_until: float
    """The loop's time until which a message that was handed back may still come."""

    def send_to_dlq(
        self, handler: Handler, queue: Acknowledgement, message: Message, failure: Failure
    ) -> asyncio.Future[None]:
        """An orderly handler gave up. Done when the message is finished."""
        ...

    async def stop(self) -> None:
        """Give up what is waiting."""
        ...
