"""Threads of sync handlers in virtual time.

Every job runs in a real thread, but only one of {the loop, one thread} runs at a time: the loop hands a baton to a
thread and waits until it comes back. A job gives it back when it blocks (`block` registers a timer on the virtual
loop) and when it ends. So the order of everything follows from the seed. The turns of a thread belong to its process:
while that is frozen they wait, and once it is dead they never come.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextvars import copy_context

from rocketapp.consumer.workers.in_threads import Threads

_local = threading.local()


class Ended(BaseException):
    """The process of this thread is dead, and the simulation takes its threads apart."""


def block(seconds: float) -> None:
    """What `time.sleep` is to the job of a simulated thread."""
    thread: _Thread = _local.thread
    thread.block(seconds)


class SimulatedThreads(Threads):
    """Stands for the threads of one process. Make it in the context of that process."""

    def __init__(self, most: int = 1000) -> None:
        super().__init__()
        self._most = most
        self._loop = asyncio.get_running_loop()
        self.jobs: deque[Callable[[], None]] = deque()
        self.idle: list[_Thread] = []
        self.is_stopped = False
        self._made: list[_Thread] = []

    def __repr__(self) -> str:
        return f"<SimulatedThreads: {len(self._made)} of {self._most}, {len(self.jobs)} jobs wait>"

    def add(self) -> None:
        """Threads come with their jobs."""

    def run(self, job: Callable[[], None]) -> None:
        """Run it in a thread, as soon as one is free."""
        self.jobs.append(job)
        if self.idle:
            self._loop.call_soon(self.idle.pop().turn)
        elif len(self._made) < self._most:
            self._made.append(_Thread(self, self._loop, f"handlers {len(self._made)}"))

    def stop(self) -> None:
        """Every thread ends when its job has ended."""
        self.is_stopped = True
        while self.idle:
            self.idle.pop().turn()

    def halt(self) -> None:
        """Simulated processes do not fork."""

    def end(self) -> None:
        """End every thread, wherever it is: its process is dead, or the simulation is over."""
        self.is_stopped = True
        self.jobs.clear()
        for thread in self._made:
            thread.end()


class _Thread:
    """One thread, which runs only while the loop waits for it."""

    def __init__(self, threads: SimulatedThreads, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._threads, self._loop = threads, loop
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._wait: float | None = None
        """Seconds after which it wants to go on; None when it has nothing to do."""
        self._is_ending = self._is_over = False
        # In the context of its process, to which everything belongs that it gives to the loop.
        self._thread = threading.Thread(target=copy_context().run, args=(self._main,), name=name, daemon=True)
        self._thread.start()
        loop.call_soon(self.turn)

    def turn(self) -> None:
        """On the loop: let it run until it blocks or has nothing to do."""
        if self._is_over:
            return
        self._wait = None
        self._go.release()
        self._back.acquire()
        if self._wait is not None:
            self._loop.call_later(self._wait, self.turn)

    def end(self) -> None:
        """On the loop: every attempt to block raises from now on."""
        self._is_ending = True
        self.turn()
        self._thread.join()

    def block(self, seconds: float) -> None:
        """In the thread: let the loop run until these seconds have passed."""
        if self._is_ending:
            raise Ended
        self._wait = seconds
        self._give_back()
        if self._is_ending:
            raise Ended

    def _give_back(self) -> None:
        self._back.release()
        self._go.acquire()

    def _main(self) -> None:
        _local.thread = self
        self._go.acquire()
        try:
            self._work()
        finally:
            self._wait, self._is_over = None, True
            self._back.release()

    def _work(self) -> None:
        threads = self._threads
        while not self._is_ending:
            if threads.jobs:
                self._run(threads.jobs.popleft())
            elif threads.is_stopped:
                return
            else:
                threads.idle.append(self)
                self._wait = None
                self._give_back()

    def _run(self, job: Callable[[], None]) -> None:
        try:
            job()
        except BaseException as error:
            if not self._is_ending:
                self._loop.call_exception_handler({"message": "a simulated thread failed", "exception": error})
