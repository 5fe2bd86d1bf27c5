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
from concurrent.futures import ThreadPoolExecutor

from rocketapp.broker.locks import LockSave, LockTable
from rocketapp.broker.store.config_files import QUEUE_LOCKS, decode
from rocketapp.broker.store.files import Files, read_whole, replace_whole
from rocketapp.broker.store.store import MessageStore
from rocketapp.clock import Clock
from rocketapp.errors import ProtocolError, StoreError
from rocketapp.model.event import LoopFailed, Observe

Saved = Callable[[StoreError | None], None]


class LockFile:
    """Loads and writes one lock table. At most one write is under way, and the next one contains all changes since."""

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
        self._threads = ThreadPoolExecutor(1, "rocketapp-broker-locks") if in_thread else None
        self._waiting: list[Saved] = []
        self._planned: asyncio.Handle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._closed = False

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
            locks.close_until_expiry(now)
            self._observe(LoopFailed("locks", f"{problem}. No lock is granted until all earlier locks have expired"))

    def save(self, saved: Saved | None = None) -> None:
        """Write the present locks soon. `saved` is called when they are on disk, or with the error."""
        if self._closed:
            return
        if saved is not None:
            self._waiting.append(saved)
        if self._planned is None and self._writing is None:
            self._planned = asyncio.get_running_loop().call_soon(self._begin)

    def save_now(self) -> None:
        """Write the locks if they have changed, and return when they are on disk. A failure is reported."""
        save = self._begin_save()
        if save is not None:
            try:
                self._write(save)
            except OSError as error:
                self._observe(LoopFailed("saving locks", str(error)))
                self._locks.end_save(save, is_saved=False)
            else:
                self._locks.end_save(save, is_saved=True)

    async def close(self) -> None:
        """Write the rest. Who still waits gets no answer: the server has stopped."""
        self._closed = True
        if self._planned is not None:
            self._planned.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._threads is not None:
            self._threads.shutdown()
        self.save_now()

    def _begin_save(self) -> LockSave | None:
        """The queue locks to write; None if they have not changed, or are not known."""
        now = self._monotonic()
        if not self._locks.dirty or self._locks.is_closed(now):
            return None
        return self._locks.begin_save(now, self._clock.now())

    def _write(self, save: LockSave) -> None:
        """Write queue locks, in any thread, one call at a time."""
        replace_whole(self._files, QUEUE_LOCKS, json.dumps(save.content).encode())

    def _begin(self) -> None:
        self._planned = None
        waiting, self._waiting = self._waiting, []
        save = self._begin_save()
        if save is None:
            self._tell(waiting, None)
        elif self._threads is None:
            error: BaseException | None = None
            try:
                self._write(save)
            except Exception as problem:
                error = problem
            self._end(save, waiting, error)
        else:
            self._writing = asyncio.get_running_loop().run_in_executor(self._threads, self._write, save)
            self._writing.add_done_callback(lambda done: self._end(save, waiting, done.exception()))

    def _end(self, save: LockSave, waiting: list[Saved], error: BaseException | None) -> None:
        self._writing = None
        self._locks.end_save(save, is_saved=error is None)
        place = self._files.place(QUEUE_LOCKS)
        self._tell(waiting, None if error is None else StoreError(f"{place} cannot be written: {error}"))
        if (self._waiting or (error is None and self._locks.dirty)) and not self._closed:
            self._planned = asyncio.get_running_loop().call_soon(self._begin)

    def _tell(self, waiting: list[Saved], error: StoreError | None) -> None:
        if self._closed:
            return
        for saved in waiting:
            with contextlib.suppress(Exception):
                saved(error)
