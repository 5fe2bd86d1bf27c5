"""A loop in virtual time that knows of work outside of it: threads, executors, sockets.

Virtual time must not run away while a handler waits for something real. So it stands still

- while sync handlers or jobs of an executor run. Only when they do not end within a second of real time it goes on, in
  step with real time, so that timeouts and warnings come as they do in production;
- for a few milliseconds before every jump, while handlers run and other libraries' sockets or threads could wake them.
  The loop cannot know whether a handler waits for a database or for a timer; a database of a test answers at once.

A thread that waits for the loop, as `publish_sync` does, does not make time stand still:
the loop may need time to answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rocketapp.consumer.workers.threads import Threads
from rocketapp.testing.virtual_time import StandstillError, VirtualTimeLoop

_LOOK = 0.002
"""Seconds of real time between two looks at what runs outside."""
_PATIENCE = 1.0
"""Seconds of real time that a thread may take before virtual time goes on."""
_ASKED_PATIENCE = 0.05
"""The same for a thread that asked the loop for something and may wait for the answer."""
_FIRST_GRACE, _GRACE = 0.02, 0.001
"""Seconds of real time for an answer from outside: before the first jump of a pause, and before the next ones."""
_CLOSE = 1e-9

of_thread: threading.local = threading.local()
"""`of_thread.serves` is the loop whose handlers this thread runs."""


class DrivenLoop(VirtualTimeLoop):
    """Virtual time up to a horizon, and not while it has to stand still."""

    def __init__(self) -> None:
        self.horizon: float = math.inf
        """Time does not pass beyond this second: the loop stops there."""
        self.is_at_horizon: bool = False
        self.slice_until: float = math.inf
        """When the loop stops to let another one have its turn (`time.perf_counter`)."""
        self.jobs: int = 0
        """What runs in threads on behalf of handlers."""
        self.calls: int = 0
        """Calls of code that may wait for something outside."""
        self._quiet: float = 0.0
        self._asked = False
        self.own_threads: int = threading.active_count()
        """Those of before, and of sync handlers: they say themselves when they work."""
        super().__init__()

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        future = super().run_in_executor(executor, func, *args)
        self.jobs += 1
        future.add_done_callback(self._job_done)
        return future

    def call_soon_threadsafe(self, callback: Callable[..., Any], *args: Any, **more: Any) -> asyncio.Handle:  # type: ignore[override]
        if getattr(of_thread, "serves", None) is self and getattr(callback, "__module__", "") == "asyncio.tasks":
            self._asked = True  # asyncio.run_coroutine_threadsafe: it waits for the answer
        return super().call_soon_threadsafe(callback, *args, **more)

    def job_done(self) -> None:
        """From a thread: what it ran has ended."""
        super().call_soon_threadsafe(self._job_done)

    def _job_done(self, _: object = None) -> None:
        self.jobs -= 1
        if not self.jobs:
            self._asked = False

    def _advance(self, seconds: float | None) -> None:
        # With its own pipe alone, the loop has nothing to look for: the pipe only wakes a loop that waits.
        self._jumping.looks = bool(self.jobs or self._could_be_woken())
        if self._stands_still():
            pass
        elif seconds is None and self.horizon == math.inf:
            raise StandstillError("every task waits for another and no timer is set")
        else:
            self._pass(math.inf if seconds is None else seconds)
        if time.perf_counter() > self.slice_until:
            self.stop()

    def _tick(self) -> None:
        super()._tick()
        if time.perf_counter() > self.slice_until:
            self.stop()

    def _pass(self, seconds: float) -> None:
        then = self._virtual_now + max(seconds, 0.0)
        if then > self.horizon + _CLOSE:
            self._virtual_now = max(self.horizon, self._virtual_now)
            self.is_at_horizon = True
            self.stop()
        else:
            self._virtual_now = then

    def _stands_still(self) -> bool:
        """Wait in real time for what runs outside, if there is a reason to."""
        if self.jobs:
            if self._wait(_LOOK) or self._quiet < (_ASKED_PATIENCE if self._asked else _PATIENCE):
                return True
            if not self._asked and self._virtual_now < self.horizon:
                self._virtual_now = min(self._virtual_now + _LOOK, self.horizon)
            return not self._asked
        if self.calls and self._could_be_woken():
            return self._wait(_FIRST_GRACE if not self._quiet else _GRACE)
        self._quiet = 0.0
        return False

    def _wait(self, seconds: float) -> bool:
        began = time.perf_counter()
        arrived = self._jumping.wait(seconds)
        self._quiet = 0.0 if arrived else self._quiet + time.perf_counter() - began
        return arrived

    def _could_be_woken(self) -> bool:
        """Whether sockets are watched beside the loop's own pipe, or threads were started."""
        return len(self._jumping.get_map()) > 1 or threading.active_count() > self.own_threads

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Code runs meanwhile that may wait for something outside."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1


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
