"""What the committer of a broker keeps for each queue that is consumed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message

CAREFUL_FOR = 60.0
"""Seconds for which a previous owner without a lock may go on, as it does when it stops and drains."""


@dataclass(slots=True, eq=False)
class Session:
    """The offsets of one session of one queue."""

    process_queue: ProcessQueue[Message]
    lease: Lease | None
    """Under a lease, nothing is committed without it."""
    overtaken: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done when another member has gone on with the queue: nothing more of this session is committed."""
    is_ending: bool = False
    """It is being given away: a successor may go on with it at any time."""
    read_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    """When the offset was read last, because the session began or the queue was idle."""
    careful_until: float = field(init=False)
    """Until then the stored offset is read before each commit: the previous owner may commit what it still runs."""
    is_fresh: bool = field(init=False)
    """Without a lease: nothing was committed since the session began."""

    def __post_init__(self) -> None:
        self.is_fresh = self.lease is None
        self.careful_until = self.read_at + CAREFUL_FOR if self.lease is None else self.read_at

    @property
    def queue(self) -> MessageQueue:
        return self.process_queue.message_queue
