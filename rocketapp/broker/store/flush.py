"""One flush: sync everything that was written.

Rule: the thread that owns the store begins and ends a flush. Any thread may run it, so that the event loop
does not wait for a slow disk. A flush covers everything that was appended before it was begun.
"""

from __future__ import annotations

from rocketapp.broker.store.checkpoint import Checkpoint, Hint, save_hint
from rocketapp.broker.store.commit_log import CommitLog
from rocketapp.broker.store.consume_queue import sync_written
from rocketapp.broker.store.files import File, Files


class Flush:
    """The files to sync. `run` may be called twice; the work is done once."""

    def __init__(self, files: Files, log: CommitLog, checkpoint: Checkpoint, log_ms: int) -> None:
        self.log_end: int = log.end
        self.log_ms: int = log_ms
        self.queues_ms: int | None = None
        self.log_files: list[File] = list(log.unsynced())
        self._files, self._log, self._checkpoint = files, log, checkpoint
        self._segment = log.next_segment()
        self._is_done = False
        self.queue_files: dict[str, bool] = {}
        """Consume-queue files to sync. Afterwards: those that have to wait for the next flush."""
        self.hint: Hint | None = None
        """Written when all of them are synced: it says that the queues are complete until then."""
        self.created: int | None = None
        """The position of a segment that was created for later."""
        self.fatal: Exception | None = None
        """Syncing the log failed, or nobody knows what did. Whether the written bytes are on disk is unknown."""
        self.queues_lost: OSError | None = None
        """Syncing a consume queue failed. Its entries can be made again from the log."""
        self.problem: OSError | None = None
        """Anything else failed. It can be tried again."""

    def run(self) -> None:
        """Do the work. Errors are stored in `fatal`, `queues_lost` and `problem`."""
        if self._is_done:
            return
        try:
            for file in self.log_files:
                file.sync()
        except OSError as error:
            self.fatal = error
        else:
            self._sync_rest()
        self._is_done = True

    def _sync_rest(self) -> None:
        try:
            self.queue_files = sync_written(self._files, self.queue_files)
            if self.queue_files:
                self.hint = None
        except OSError as error:
            self.queues_lost, self.hint = error, None
        try:
            if self.hint is not None:
                save_hint(self._files, self.hint)
            self._checkpoint.write(self.log_ms, self.log_end, self.queues_ms)
            if self.hint is not None or len(self.log_files) > 1:
                self._checkpoint.sync()
            if self._segment is not None:
                self._log.create(self._segment)
                self.created = self._segment
        except OSError as error:
            self.problem = error
