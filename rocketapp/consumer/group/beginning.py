"""How a session of an owned queue begins: under its lock, or after the member before it; at its offset."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rocketapp.consumer.group.leases import Leases, Lock
from rocketapp.consumer.group.start_offsets import StartOffsets
from rocketapp.consumer.stall_reasons import StallReasons
from rocketapp.model.message_queue import MessageQueue
from rocketapp.tasks import Tasks

_LOCK_PATIENCE = 1.0
"""Seconds without its lock after which a queue is said to stand still."""


class Beginning:
    """What the sessions of one queue need before they pull."""

    def __init__(
        self,
        queue: MessageQueue,
        ended: asyncio.Future[None],
        *,
        starts: StartOffsets,
        leases: Leases,
        tasks: Tasks,
        stall_reasons: StallReasons,
        recall: Callable[[MessageQueue], Awaitable[None]],
    ) -> None:
        """`ended`: done when the queue is to be given back.

        `recall` learns what the owner of a locked queue before has counted.
        """
        self._queue, self._ended, self._starts, self._leases = queue, ended, starts, leases
        self._tasks, self._stall_reasons, self._recall = tasks, stall_reasons, recall
        self._now = asyncio.get_running_loop().time

    def __repr__(self) -> str:
        return f"<Beginning {self._queue}>"

    async def locked(self) -> Lock:
        """The queue's lock; not held only if the queue is to be given back."""
        lock = self._leases.want(self._queue)
        while not lock.gained.done() and not self._ended.done():
            await self._wait(lock.gained, timeout=_LOCK_PATIENCE)
            if not lock.gained.done():
                self._stall_reasons.still(self._queue, f"no lock: {lock.problem}", kind="lock")
        return lock

    async def offset(self, lock: Lock | None) -> int | None:
        """Where the session begins; None when it does not."""
        while not self._ended.done() and (lock is None or await lock.usable()):
            suspensions = 0 if lock is None else lock.lease.suspensions
            asking = self._tasks.start(self._starts.offset(self._queue), f"start of {self._queue}")
            try:
                # Its broker may have to be dialled: a queue that is given back does not wait for that.
                await self._wait(asking)
                if not asking.done():
                    return None
                offset: int = asking.result()
            finally:
                asking.cancel()
            if lock is None:
                return offset
            await self._recall(self._queue)
            # While the lock was in doubt, or its time was over, another member may have gone on.
            if suspensions == lock.lease.suspensions and lock.lease.held(self._now()):
                return offset
        return None

    async def _wait(self, other: asyncio.Future[None] | asyncio.Task[int], timeout: float | None = None) -> None:
        await asyncio.wait([other, self._ended], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
