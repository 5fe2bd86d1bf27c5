"""Finished offsets are committed: regularly, with the pulls, and with an answer when a queue is given up.

A commit belongs to an assignment. Neither a closed process queue nor one whose assignment
is not trusted any more commits anything.
"""

from __future__ import annotations

import asyncio
import contextlib

from rocketapp.consumer.group.brokers import Brokers
from rocketapp.errors import RocketAppError
from rocketapp.model.event import CommitFailed, LoopFailed, Observe
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.lease import Lease
from rocketapp.state.offset_table import OffsetTable
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.trust import Trust
from rocketapp.wire.record import Message

_READ_BACK = 3
"""Times that a final commit is repeated when a pull that was still under way overtook it."""


class Offsets:
    """Tells brokers how far each queue is done."""

    def __init__(self, *, group: str, brokers: Brokers, observe: Observe, interval: float, trust: Trust) -> None:
        """`interval`: seconds between two rounds of commits."""
        self._group, self._brokers, self._observe, self._interval = group, brokers, observe, interval
        self._trust = trust
        self._table = OffsetTable()
        self._queues: dict[MessageQueue, tuple[ProcessQueue[Message], Lease | None]] = {}
        self._soon = asyncio.Event()
        self._now = asyncio.get_running_loop().time

    def begin(self, queue: ProcessQueue[Message], confirmed: int | None, lease: Lease | None = None) -> None:
        """A new assignment; `confirmed` is what the broker holds. Under a lease, nothing is committed without it."""
        self._table.begin(queue.message_queue, queue.epoch, confirmed)
        self._queues[queue.message_queue] = queue, lease

    def end(self, queue: ProcessQueue[Message]) -> None:
        """The assignment is over: nothing of it is committed any more."""
        queue.close()
        self._table.end(queue.message_queue, queue.epoch)
        if self._queues.get(queue.message_queue, (None, None))[0] is queue:
            del self._queues[queue.message_queue]

    def confirmed(self, queue: MessageQueue) -> int | None:
        """What the broker is known to hold."""
        return self._table.confirmed(queue)

    def travelling(self, queue: ProcessQueue[Message]) -> int | None:
        """The offset that may go along with a pull; None when none may."""
        if queue.closed or not self._trust.is_trusted(queue.message_queue, self._now()):
            return None
        _, lease = self._queues[queue.message_queue]
        if lease is not None and not lease.held(self._now()):
            return None
        return queue.commit_offset

    def arrived(self, queue: ProcessQueue[Message], offset: int | None) -> None:
        """The pull that carried this offset was answered, so the broker has stored it (0 does not travel)."""
        if offset:
            self._table.confirm(queue.message_queue, queue.epoch, offset)

    async def run(self) -> None:
        """Commit what is news, for ever."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval):
                    await self._soon.wait()
            self._soon.clear()
            try:
                await self.flush()
            except Exception as error:
                # Whatever it was, later offsets must still be committed.
                self._observe(LoopFailed("commit", f"{type(error).__name__}: {error}"))

    def flush_soon(self) -> None:
        """Do not wait for the next round."""
        self._soon.set()

    async def flush(self) -> None:
        """Commit what is news, all queues at once. What cannot be sent stays for the next round."""
        await asyncio.gather(*(self.commit(queue) for queue, _ in list(self._queues.values())))

    async def commit(self, queue: ProcessQueue[Message]) -> bool:
        """Commit with an answer; whether the broker holds what is finished."""
        offset = self.travelling(queue)
        if offset is None:
            return False
        if not self._table.is_unsent(queue.message_queue, queue.epoch, offset):
            return True
        try:
            await self._brokers.commit(queue.message_queue, offset)
        except RocketAppError as error:
            self._observe(CommitFailed(self._group, queue.message_queue, offset, str(error)))
            return False
        self._table.confirm(queue.message_queue, queue.epoch, offset)
        return True

    async def commit_finally(self, queue: ProcessQueue[Message]) -> bool:
        """Commit for whoever owns the queue next: read back, because a pull under way may carry an older offset."""
        for _ in range(_READ_BACK):
            if not await self.commit(queue):
                return False
            offset = queue.commit_offset
            try:
                stored = await self._brokers.committed(queue.message_queue)
            except RocketAppError as error:
                self._observe(CommitFailed(self._group, queue.message_queue, offset, str(error)))
                return False
            if stored == offset:
                return True
            self._table.confirm(queue.message_queue, queue.epoch, -1 if stored is None else stored)
        return False
