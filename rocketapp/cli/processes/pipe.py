"""A socket pair between `rocketapp run` and one of its children, for lines in both directions. Each end is a `Pipe`.

The end of the stream tells either process that the other is gone, even after kill -9. It may not come: a process that
the other one forked can hold its end open. So each end also checks regularly whether the other process exists.
"""

from __future__ import annotations

import contextlib
import queue
import select
import signal
import socket
import threading
from collections.abc import Callable

from rocketapp.cli.processes.stop import SIGNALS

INTERVAL = 1.0
"""Seconds between looks whether the process at the other end is still there."""
MOST_WAITING = 4
"""Lines that wait when one that may be left out is left out."""


class Pipe:
    """One end. `tell` never waits for the other process, even when that is frozen: a thread sends."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._unsent: queue.Queue[bytes | None] = queue.Queue()
        threading.Thread(target=self._send, name="rocketapp-sending", daemon=True).start()

    def tell(self, line: bytes, *, may_skip: bool = False) -> None:
        """Send a line, from any thread.

        One that `may_skip` is dropped while many wait. Ignored when nobody is there.
        """
        if not may_skip or self._unsent.unfinished_tasks < MOST_WAITING:
            self._unsent.put(line + b"\n")

    def flush(self, patience: float) -> None:
        """Wait until everything is sent, for at most `patience` seconds: before this process ends."""
        with self._unsent.all_tasks_done:
            self._unsent.all_tasks_done.wait_for(lambda: not self._unsent.unfinished_tasks, patience)

    def listen(self, hear: Callable[[bytes], object], is_there: Callable[[], bool]) -> None:
        """Call `hear` with each line, in this thread, until the pipe ends or the other process is gone."""
        # Signals are for the main thread. This one must not take them: it waits in a system call.
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        ready = select.poll()  # `select` itself refuses high descriptors
        ready.register(self._end, select.POLLIN)
        heard, was_there = b"", True
        while was_there:
            was_there = is_there()  # asked first: what such a process said last is heard
            while ready.poll(INTERVAL * 1000 if was_there else 0):
                try:
                    data = self._end.recv(65536)
                except OSError:  # reset by a process that had not read all
                    return
                if not data:
                    return
                *lines, heard = (heard + data).split(b"\n")
                for line in lines:
                    hear(line)

    def close(self) -> None:
        """The other process is gone: close this end."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)  # the thread may be sending
        self._end.close()
        self._unsent.put(None)

    def _send(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        while (line := self._unsent.get()) is not None:
            with contextlib.suppress(OSError):  # nobody is there
                self._end.sendall(line)
            self._unsent.task_done()
