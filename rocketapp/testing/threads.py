"""The threads of sync handlers under test: real ones, and virtual time stands still while they work.

Real threads, because a sync handler may use whatever blocks, and may publish with `publish_sync` while the loop turns.
They are deterministic all the same: one thread drains the work of a handler as long as no time passes (see
`consumer.workers.thread_workers`), so messages are handled one after the other, in their order.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from rocketapp.consumer.workers.threads import Threads
from rocketapp.testing.outside import DrivenLoop, of_thread


class CountedThreads(Threads):
    """Tells its loop what runs."""

    def __init__(self, name: str, most: int, loop: DrivenLoop) -> None:
        super().__init__(name, most)
        self._loop = loop

    def run(self, job: Callable[[], None]) -> None:
        before = len(self._threads)
        super().run(lambda: self._counted(job))
        self._loop.jobs += 1
        self._loop.own_threads += len(self._threads) - before

    def _counted(self, job: Callable[[], None]) -> None:
        """In a thread."""
        of_thread.serves = self._loop
        try:
            job()
        finally:
            with contextlib.suppress(RuntimeError):  # the test is over, and the loop closed
                self._loop.job_done()
