"""Turns a loop in virtual time from the thread of a test, also inside of the test's own running loop.

The two loops share the thread and take turns: while the virtual loop turns, the other one has stepped aside, and is
not the running loop; it gets a turn of its own every few milliseconds. So a handler runs in the thread of its test,
as it does in production in the thread of the process, and a breakpoint, a connection of sqlite3 or a patched
attribute mean to it what they mean to the test.

Virtual time must not run away while a handler waits for something real: threads, executors, sockets. So it stands still

- while sync handlers or jobs of an executor run. Only when they do not end within a second of real time it goes on, in
  step with real time, so that timeouts and warnings come as they do in production;
- for a quarter of a second before the first jump of a pause, and a millisecond before the next ones, while handlers run
  and other libraries' sockets or threads could wake them. The loop cannot know whether a handler waits for a database
  or for a timer; a database of a test answers soon, and may have to accept a connection first on a busy machine.

A thread that waits for the loop, as `publish_sync` does, does not make time stand still until it has its answer:
the loop may need time for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from asyncio import events, tasks
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import closing, contextmanager
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from rocketapp.consumer.workers.in_threads import Threads
from rocketapp.tasks import Tasks
from rocketapp.testing.virtual_time import StandstillError, VirtualTimeLoop

_LOOK = 0.002
"""Seconds of real time between two looks at what runs outside."""
_PATIENCE = 1.0
"""Seconds of real time that a thread may take before virtual time goes on."""
_ASKED_PATIENCE = 0.05
"""The same for a thread that asked the loop for something and may wait for the answer."""
_FIRST_GRACE, _GRACE = 0.25, 0.001
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
        self._asked = set[asyncio.Task[Any]]()
        """What threads have asked the loop for and may wait for."""
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
            callback = partial(self._ask, callback)  # asyncio.run_coroutine_threadsafe: it waits for the answer
        return super().call_soon_threadsafe(callback, *args, **more)

    def _ask(self, callback: Callable[..., Any]) -> None:
        """On the loop: a thread waits until what it asks for has an end, and works on then."""
        before = asyncio.all_tasks(self)
        callback()
        for task in asyncio.all_tasks(self) - before:
            self._asked.add(task)
            task.add_done_callback(self._asked.discard)

    def job_done(self) -> None:
        """From a thread: its job has ended."""
        super().call_soon_threadsafe(self._job_done)

    def _job_done(self, _: object = None) -> None:
        self.jobs -= 1

    def _advance(self, seconds: float | None) -> None:
        # With its own pipe alone, the loop has nothing to look for: the pipe only wakes a loop that waits.
        self._jumping.looks = bool(self.jobs or self._could_be_woken())
        if self._stands_still() or self._ready:  # type: ignore[attr-defined]
            pass  # also when a thread has called something, and ended before anyone looked for threads
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
        """Context manager for code that may wait for something outside of the loop."""
        self.calls += 1
        try:
            yield
        finally:
            self.calls -= 1


class CountedThreads(Threads):
    """Threads that tell their loop how many jobs run, so that virtual time waits for them."""

    def __init__(self, loop: DrivenLoop) -> None:
        super().__init__()
        self._loop = loop

    def add(self) -> None:
        super().add()
        self._loop.own_threads += 1

    def run(self, job: Callable[[], None]) -> None:
        super().run(lambda: self._counted(job))
        self._loop.jobs += 1

    def _counted(self, job: Callable[[], None]) -> None:
        """Run a job in a thread; virtual time stands still until it has ended."""
        of_thread.serves = self._loop
        try:
            job()
        finally:
            with contextlib.suppress(RuntimeError):  # the test is over, and the loop closed
                self._loop.job_done()


T = TypeVar("T")
_SLICE = 0.01
"""Seconds of real time after which the other loop gets a turn."""

_LONGEST_WAIT = 60.0
"""Seconds of virtual time that cancelled work may take to end."""


class Driver:
    """One loop in virtual time. Nothing of it runs, and its time stands still, outside of the calls of this class."""

    def __init__(self) -> None:
        self.loop: DrivenLoop = DrivenLoop()
        self._tasks = Tasks()

    def __repr__(self) -> str:
        return f"<Driver at {self.loop.time():g} s>"

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Turn until the work is done; time passes as it needs it. For tests without a loop."""
        task: list[asyncio.Task[T]] = []
        with closing(self._turns_of(work, task)) as turns:
            for _ in turns:
                pass
        return task[0].result()

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """The same for tests with a loop, which gets its turns."""
        task: list[asyncio.Task[T]] = []
        with closing(self._turns_of(work, task)) as turns:
            for _ in turns:
                await _give_way()
        return task[0].result()

    def run_until(self, when: float) -> None:
        """Turn until this second, and until nothing is left to do at it. For tests without a loop."""
        for _ in self._turns_until(when):
            pass

    async def run_until_async(self, when: float) -> None:
        """The same for tests with a loop, which gets its turns."""
        for _ in self._turns_until(when):
            await _give_way()

    def close(self) -> None:
        """End what is left on the loop, and the loop."""
        loop = self.loop
        loop.horizon = loop.slice_until = math.inf
        with _aside():
            try:
                for task in (left := asyncio.all_tasks(loop)):
                    task.cancel()
                if left:
                    loop.run_until_complete(asyncio.wait(left, timeout=_LONGEST_WAIT))
                loop.run_until_complete(loop.shutdown_asyncgens())
                loop.jobs += 1  # a thread of asyncio waits for the executor's
                loop.run_until_complete(loop.shutdown_default_executor())
            finally:
                loop.close()

    def _turns_of(self, work: Coroutine[Any, Any, T], task: list[asyncio.Task[T]]) -> Generator[None]:
        loop = self.loop
        loop.horizon = math.inf

        def begin() -> None:
            task.append(self._tasks.start(work, "test"))
            task[0].add_done_callback(lambda _: loop.stop())

        loop.call_soon(begin, context=copy_context())
        try:
            while not (task and task[0].done()):
                self._turn()
                yield
        finally:
            if task and not task[0].done():
                # The test was cancelled or interrupted, or every task waits: what the test waited for ends too.
                loop.call_soon(task[0].cancel)
                loop.horizon = loop.time() + _LONGEST_WAIT
                while not (task[0].done() or loop.is_at_horizon):
                    self._turn()

    def _turns_until(self, when: float) -> Generator[None]:
        self.loop.horizon = when
        while True:
            self._turn()
            if self.loop.is_at_horizon:
                return
            yield

    def _turn(self) -> None:
        """Turn until the loop stops: at its horizon, when work is done, or so that another loop gets its turn."""
        loop = self.loop
        loop.is_at_horizon = False
        with _aside() as other:
            loop.slice_until = math.inf if other is None else time.perf_counter() + _SLICE
            loop.run_forever()


async def _give_way() -> None:
    """Let the other tasks of the running loop have one turn."""
    if events._get_running_loop() is not None:
        await asyncio.sleep(0)


@contextmanager
def _aside() -> Iterator[asyncio.AbstractEventLoop | None]:
    """Context manager in which the running loop of this thread, and its task, step aside."""
    outer = events._get_running_loop()
    if outer is None:
        yield None
        return
    task = asyncio.current_task(outer)
    if task is not None:
        tasks._leave_task(outer, task)
    events._set_running_loop(None)
    try:
        yield outer
    finally:
        events._set_running_loop(outer)
        if task is not None:
            tasks._enter_task(outer, task)
