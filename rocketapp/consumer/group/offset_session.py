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
STILL_PULLS = 3.0
"""Seconds after which a previous owner has heard that it has the queue no more, and pulls nothing."""


@dataclass(slots=True, eq=False)
class Session:
    """The offsets of one session of one queue."""

    process_queue: ProcessQueue[Message]
    lease: Lease | None
    """Under a lease, nothing is committed without it."""
    is_contested: bool
    """Another member lives, and may still commit what it ran as the previous owner."""
    overtaken: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    """Done when another member has gone on with the queue: nothing more of this session is committed."""
    is_from_slave: bool = False
    """It began at the offset of a slave, which may be older than what the master will say when it is back."""
    is_ending: bool = False
    """It is being given away: a successor may go on with it at any time."""
    read_at: float = field(default_factory=lambda: asyncio.get_running_loop().time())
    """When the offset was read last, because the session began or the queue was idle."""
    contested_end: int | None = None
    """No previous owner has pulled, or may commit, more than this; None as long as it is not known."""
    writes_from: float = 0.0
    """Until then nothing is written while the session is careful."""
    told_broker: int = 0
    """Where a store of another kind keeps the offsets: what the broker has heard of them."""
    is_fresh: bool = field(init=False)
    """Without a lease: nothing was committed since the session began."""
    _began: float = field(init=False)

    def __post_init__(self) -> None:
        self.is_fresh = self.lease is None
        self._began = self.read_at

    def is_careful(self, now: float) -> bool:
        """Whether the stored offset is read before ours is written: a previous owner may have committed a higher one.

        It commits what it still runs, but no more than the queue held when it pulled last.
        """
        if self.is_fresh:
            return True
        if self.lease is not None or not self.is_contested or now >= self._began + CAREFUL_FOR:
            return False
        # An older answer may be older than the last pull of that owner: a full queue is not pulled.
        if self.contested_end is None and self.process_queue.answered_at >= self._began + STILL_PULLS:
            self.contested_end = self.process_queue.broker_end
        return self.contested_end is None or self.process_queue.commit_offset < self.contested_end

    @property
    def queue(self) -> MessageQueue:
        return self.process_queue.message_queue
