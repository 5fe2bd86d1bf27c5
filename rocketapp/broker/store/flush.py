"""One flush: sync everything that was written.

Rule: the thread that owns the store begins and ends a flush. Any thread may run it, so that the event loop
does not wait for a slow disk. A flush covers everything that was appended before it was begun.
"""

from __future__ import annotations

import threading

from rocketapp.broker.store.checkpoint import Checkpoint, Hint, save_hint
from rocketapp.broker.store.consume_queue import sync_written
from rocketapp.broker.store.files import File, Files


class Flush:
    """The files to sync. `run` may be called twice, also by two threads; the work is done once."""

    def __init__(
        self, files: Files, log_file: File | None, log_end: int, checkpoint: Checkpoint, *, log_ms: int, queues_ms: int
    ) -> None:
        self.log_end: int = log_end
        self.log_ms: int = log_ms
        self.queues_ms: int = queues_ms
        self._files, self._log_file, self._checkpoint = files, log_file, checkpoint
        self._paths: list[str] = []
        self._lock = threading.Lock()
        self._is_done = False
        self.hint: Hint | None = None
        self.fatal: OSError | None = None
        """A sync failed. Whether the written bytes are on disk is unknown."""
        self.problem: OSError | None = None
        """Writing the hint or the checkpoint failed. It can be tried again."""

    def include_queues(self, paths: list[str], hint: Hint) -> None:
        """Sync these consume-queue files too, and then write the hint."""
        self._paths, self.hint = paths, hint
        self.queues_ms = self.log_ms

    def run(self) -> None:
        """Do the work. Errors are stored in `fatal` and `problem`."""
        with self._lock:
            if not self._is_done:
                self._sync()
                self._is_done = True

    def _sync(self) -> None:
        try:
            if self._log_file is not None:
                self._log_file.sync()
            sync_written(self._files, self._paths)
        except OSError as error:
            self.fatal = error
            return
        try:
            if self.hint is not None:
                save_hint(self._files, self.hint)
            self._checkpoint.write(self.log_ms, self.queues_ms, self.log_end)
        except OSError as error:
            self.problem = error
