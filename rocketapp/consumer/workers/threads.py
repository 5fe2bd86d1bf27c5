"""Daemon threads that run jobs of sync handlers.

Not an executor of the standard library: the interpreter joins those threads when it ends,
so a handler that hangs would keep the process. A thread cannot be stopped: a drain that is
cut leaves it behind.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue


class Threads:
    """Threads that wait for jobs: whoever has jobs adds one for each that may run at once."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._is_halted = False
        self._threads: list[threading.Thread] = []

    def __repr__(self) -> str:
        return f"<Threads: {len(self._threads)}>"

    def add(self) -> None:
        """One more job may run at once. Raises RuntimeError when the system has no thread for it."""
        thread = threading.Thread(target=self._main, name=f"handlers {len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def run(self, job: Callable[[], None]) -> None:
        """Run the job in a thread as soon as one is free. The job itself reports to the loop."""
        self._jobs.put(job)

    def stop(self) -> None:
        """Every thread ends when its job has ended."""
        for _ in self._threads:
            self._jobs.put(None)

    def halt(self) -> None:
        """In a forked child: the thread that forked is the only one, and ends the child when its job has ended."""
        self._is_halted = True

    def _main(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            finally:
                if self._is_halted:
                    os._exit(0)


MakeThreads = Callable[[], Threads]
"""Makes the threads of the sync handlers of one group."""
