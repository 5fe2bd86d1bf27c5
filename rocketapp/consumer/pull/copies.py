"""Which copy of its broker a queue is read from: the master, a slave that it suggests, or a slave in its place.

A master suggests its slave to readers that are far behind. While a master cannot be reached, a slave is read in its
place, and the master again as soon as it is connected. A slave may be behind, or hold less than its master.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rocketapp.client.calls.pull import PullResult
from rocketapp.errors import RequestTimeoutError, RocketAppError, TransportError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import MASTER_ID

_SILENT_FOR = 30.0
"""Seconds for which a slave is read in place of a master that did not answer although it is connected."""


class Copies(Protocol):
    """The copies of brokers that routes name."""

    def reader(self, broker_name: str, wanted: int, /) -> int:
        """The copy to pull from when a broker suggested `wanted`."""
        ...

    def instead(self, broker_name: str, /) -> int | None:
        """The slave to read while the master cannot be reached; None when there is none."""
        ...

    def is_master_back(self, broker_name: str, /) -> bool:
        """Whether the master is connected (again)."""
        ...

    def begin(self, queue: MessageQueue, broker_id: int, /) -> None:
        """This queue is read from a slave in place of its master."""
        ...

    def end(self, queue: MessageQueue, /) -> None:
        """It is not any more."""
        ...


class CopyRead:
    """The copy from which one queue is read."""

    def __init__(self, queue: MessageQueue, copies: Copies | None, now: Callable[[], float]) -> None:
        """`copies` None: what brokers suggest is asked as it is, and nothing in place of a master."""
        self._queue, self._copies, self._now = queue, copies, now
        self._next_id = self._asked_id = MASTER_ID
        self.is_master: bool = True
        """The pull under way asks the master."""
        self.is_instead: bool = False
        """A slave is read in place of the master, which cannot be reached."""
        self._master_from = 0.0
        """When the master may be asked again."""

    def __repr__(self) -> str:
        return f"<CopyRead {self._queue}: {self._next_id}{' in place of its master' if self.is_instead else ''}>"

    def ask(self) -> int:
        """The id of the copy that is asked now."""
        wanted = self._next_id
        if wanted != MASTER_ID and self._copies is not None:
            wanted = self._copies.reader(self._queue.broker_name, wanted)
        self._asked_id, self.is_master = wanted, wanted == MASTER_ID
        return wanted

    def answered(self, result: PullResult) -> None:
        """Choose the copy to ask next."""
        if not self.is_instead or self._copies is None:
            # A slave that calls an offset illegal may be behind: the master decides.
            self._next_id = MASTER_ID if result.status == "illegal" else result.suggested_broker_id
        elif self._now() >= self._master_from and self._copies.is_master_back(self._queue.broker_name):
            self.to_master()
        else:
            self._copies.begin(self._queue, self._asked_id)

    def failed(self, error: RocketAppError) -> bool:
        """Choose the copy to ask next; whether it is a slave in place of the master."""
        # The slave that a broker sent us to may be gone; the master says anew where to read.
        was_instead, was_master = self.is_instead, self.is_master
        self.to_master()
        if self._copies is None or was_instead or not was_master or not isinstance(error, TransportError):
            return False
        slave = self._copies.instead(self._queue.broker_name)
        if slave is None:
            return False
        self._next_id, self.is_instead = slave, True
        self._master_from = self._now() + _SILENT_FOR if isinstance(error, RequestTimeoutError) else 0.0
        return True

    def to_master(self) -> None:
        """Ask the master next."""
        self._next_id = MASTER_ID
        if self.is_instead:
            self.is_instead = False
            if self._copies is not None:
                self._copies.end(self._queue)
