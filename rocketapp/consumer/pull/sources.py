"""What a pull loop needs of its surroundings: something that sends its pulls, and what travels with them."""

from __future__ import annotations

import asyncio
from typing import Protocol

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message


class PullSource(Protocol):
    """Sends pulls: for a group its brokers."""

    async def start_pull(
        self,
        queue: MessageQueue,
        subscription: SubscriptionData,
        offset: int,
        commit_offset: int | None,
        broker_id: int = MASTER_ID,
        /,
    ) -> asyncio.Future[Command]:
        """Send a pull; `commit_offset` travels with it. Raises RocketAppError when it cannot be sent."""
        ...


class Commits(Protocol):
    """Offsets that travel with pulls."""

    def travelling(self, process_queue: ProcessQueue[Message], /) -> int | None:
        """The offset that the next pull carries; None: nothing to commit."""
        ...

    def arrived(self, process_queue: ProcessQueue[Message], offset: int | None, /) -> None:
        """The pull that carried it has been answered."""
        ...
