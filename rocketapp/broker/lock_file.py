"""The queue locks on disk, written off the event loop, once for all the changes that come while a write is under way.

A sync takes from a millisecond to seconds, and a group that starts locks its queues in many requests.
So the number of writes depends on the speed of the disk and not on the number of requests.

The file has no `.bak`, which would lack the latest locks: they would be granted a second time. While the owners of
locks are unknown, the broker starts and grants none.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable

from rocketapp.broker.core import Tell
from rocketapp.broker.flushing import DiskThread
from rocketapp.broker.locks import LockTable
from rocketapp.broker.store.config_files import QUEUE_LOCKS, decode
from rocketapp.broker.store.files import Files, read_whole, replace_whole
from rocketapp.broker.store.store import MessageStore
from rocketapp.clock import Clock
from rocketapp.errors import ProtocolError, StoreError
from rocketapp.model.event import LoopFailed, Observe


class LockFile:
    """Loads and writes one lock table. One write is under way, and the next one contains all changes since."""

    def __init__(
        self,
        files: Files,
        locks: LockTable,
        *,
        clock: Clock,
        monotonic: Callable[[], float],
        observe: Observe,
        in_thread: bool,
    ) -> None:
        """`in_thread`: write in a thread of its own, so that a lock does not wait for a flush of the log."""
        self._files, self._locks, self._clock, self._monotonic, self._observe = files, locks, clock, monotonic, observe
        self._disk = DiskThread("rocketapp-broker-locks", in_thread=in_thread)
        self._waiting: list[Tell] = []
        self._is_wanted = asyncio.Event()

    def __repr__(self) -> str:
        return f"<LockFile {len(self._waiting)} wait>"

    def load(self, store: MessageStore) -> None:
        """Load the queue locks of the last run.

        When their file is missing or damaged, clients may hold locks that this broker does not know. It grants none
        until those have expired. A slave has no file, because its master grants them: a start in its place knows none.
        """
        if store.is_copy:
            self._files.remove(QUEUE_LOCKS)
            return
        locks, now, place = self._locks, self._monotonic(), self._files.place(QUEUE_LOCKS)
        locks.dirty = True
        try:
            data = read_whole(self._files, QUEUE_LOCKS)
            if data is not None:
                locks.load(decode(data), now, self._clock.now())
                return
            problem = f"{place} is missing" if store.topics() else ""
        except (ProtocolError, KeyError, ValueError, TypeError, OverflowError, AttributeError) as error:
            problem = f"{place} cannot be used: {type(error).__name__} {error}"
        if problem:
            locks.closed_until = now + locks.expiry
            self._observe(LoopFailed("locks", f"{problem}. No lock is granted until all earlier locks have expired"))

    def save(self, tell: Tell | None = None) -> None:
        """Write the present locks soon. `tell` is called when they are on disk, or with the error."""
        if tell is not None:
            self._waiting.append(tell)
        self._is_wanted.set()

    async def run(self) -> None:
        """Write whenever that is wanted, until cancelled. Who waits then gets no answer: the server stops."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            waiting, self._waiting = self._waiting, []
            problem = await self._disk.run(self._to_save())
            for tell in waiting:
                with contextlib.suppress(Exception):
                    tell(problem)

    def save_now(self) -> None:
        """Write the locks if they have changed, and return when they are on disk. A failure is reported."""
        if (problem := self._to_save()()) is not None:
            self._observe(LoopFailed("saving locks", problem.problem))

    def close(self) -> None:
        """Write the rest, when `run` has ended."""
        self._disk.close()
        self.save_now()

    def _to_save(self) -> Callable[[], StoreError | None]:
        """What writes the present locks, in any thread, and returns what failed; nothing while they are not known."""
        now = self._monotonic()
        if not self._locks.dirty or now < self._locks.closed_until:
            return lambda: None
        content, end_save = self._locks.begin_save(now, self._clock.now())

        def write() -> StoreError | None:
            problem = None
            try:
                replace_whole(self._files, QUEUE_LOCKS, json.dumps(content).encode())
            except Exception as error:
                problem = StoreError(f"{self._files.place(QUEUE_LOCKS)} cannot be written: {error}")
            end_save(problem is None)
            return problem

        return write
