"""Where the offsets of a group are kept: at the brokers, in a plugin's store, or in a file of this member."""

from __future__ import annotations

from typing import Protocol

from rocketapp.client.calls.offsets import Committed
from rocketapp.model.message_queue import MessageQueue


class GroupOffsets(Protocol):
    """Keeps how far each queue is done. Every question raises RocketAppError without an answer."""

    travels: bool
    """What a pull carries to its broker is a commit. Otherwise it carries what is committed already."""

    def is_connected(self, broker_name: str) -> bool:
        """Whether the offsets of this broker's queues can be reached at once."""
        ...

    async def take(self, queue: MessageQueue) -> None:
        """A session begins here: what a session before it still commits, in any process, may be refused from now on."""
        ...

    async def committed(
        self, queue: MessageQueue, *, exact: bool = False, timeout: float | None = None, dial: bool = True
    ) -> int | None:
        """The group's offset; None when nothing was committed. Not `exact`: 0 may mean that, too.

        `timeout`: seconds. Without `dial` it fails at once when no connection is open.
        """
        ...

    async def committed_for_start(self, queue: MessageQueue) -> Committed:
        """The group's offset, and whether that answer is certain."""
        ...

    async def commit(
        self, queue: MessageQueue, offset: int, *, timeout: float | None = None, dial: bool = True
    ) -> None:
        """Everything below `offset` is done; returns when that is stored.

        Raises OvertakenError when another session has begun.
        """
        ...
