"""One round of forcing what was written to disk.

Rule: begun and ended by the thread that owns the store, run in any: a disk may take its time
without anybody waiting for it. What was begun covers everything appended before.
"""

from __future__ import annotations

import threading

from rocketapp.broker.store.checkpoint import Checkpoint, Hint, save_hint
from rocketapp.broker.store.consume_queue import sync_written
from rocketapp.broker.store.files import File, Files


class Flush:
    """What is to be synced. `run` may be called twice, also by two threads: it is done once."""

    def __init__(
        self, files: Files, log_file: File | None, log_end: int, checkpoint: Checkpoint, *, log_ms: int, queues_ms: int
    ) -> None:
        self.log_end, self.log_ms, self.queues_ms = log_end, log_ms, queues_ms
        self._files, self._log_file, self._checkpoint = files, log_file, checkpoint
        self._paths: list[str] = []
        self._lock = threading.Lock()
        self._is_done = False
        self.hint: Hint | None = None
        self.fatal: OSError | None = None
        """A sync failed: what became of the written bytes, nobody knows."""
        self.problem: OSError | None = None
        """Something failed that can be tried again."""

    def include_queues(self, paths: list[str], hint: Hint) -> None:
        """Sync these consume-queue files too, and then say so."""
        self._paths, self.hint = paths, hint
        self.queues_ms = self.log_ms

    def run(self) -> None:
        """Return when it is done, well or not."""
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
