"""Writes the queue locks off the event loop, once for all the changes that come while a write is under way.

A sync takes from a millisecond to seconds, and a group that starts locks its queues in many requests.
So the number of writes depends on the speed of the disk and not on the number of requests.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from rocketapp.broker.locks import LockSave, LockTable
from rocketapp.broker.saving import Saving
from rocketapp.errors import StoreError

Saved = Callable[[StoreError | None], None]


class LockWriter:
    """The writes of one lock table. At most one is under way, and the next one contains all changes since."""

    def __init__(self, saving: Saving, locks: LockTable, *, in_thread: bool) -> None:
        """`in_thread`: write in a thread of its own, so that a lock does not wait for a flush of the log."""
        self._saving, self._locks = saving, locks
        self._threads = ThreadPoolExecutor(1, "rocketapp-broker-locks") if in_thread else None
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Saved] = []
        self._planned: asyncio.Handle | None = None
        self._writing: asyncio.Future[None] | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<LockWriter {len(self._waiting)} wait>"

    def save(self, saved: Saved | None = None) -> None:
        """Write the present locks soon. `saved` is called when they are on disk, or with the error."""
        if self._closed:
            return
        if saved is not None:
            self._waiting.append(saved)
        if self._planned is None and self._writing is None:
            self._planned = self._loop.call_soon(self._begin)

    async def close(self) -> None:
        """Wait for the write under way. Who still waits gets no answer: the server has stopped."""
        self._closed = True
        if self._planned is not None:
            self._planned.cancel()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._threads is not None:
            self._threads.shutdown()

    def _begin(self) -> None:
        self._planned = None
        waiting, self._waiting = self._waiting, []
        save = self._saving.begin_locks()
        if save is None:
            self._tell(waiting, None)
        elif self._threads is None:
            error: BaseException | None = None
            try:
                self._saving.write_locks(save)
            except Exception as problem:
                error = problem
            self._end(save, waiting, error)
        else:
            self._writing = writing = self._loop.run_in_executor(self._threads, self._saving.write_locks, save)
            writing.add_done_callback(lambda done: self._end(save, waiting, done.exception()))

    def _end(self, save: LockSave, waiting: list[Saved], error: BaseException | None) -> None:
        self._writing = None
        self._locks.end_save(save, is_saved=error is None)
        if error is not None and not isinstance(error, StoreError):
            error = StoreError(f"{type(error).__name__}: {error}")
        self._tell(waiting, error)
        if (self._waiting or (error is None and self._locks.dirty)) and not self._closed:
            self._planned = self._loop.call_soon(self._begin)

    def _tell(self, waiting: list[Saved], error: StoreError | None) -> None:
        if self._closed:
            return
        for saved in waiting:
            with contextlib.suppress(Exception):
                saved(error)
