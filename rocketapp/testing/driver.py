"""Turns a loop in virtual time from the thread of a test, also inside of the test's own running loop.

The two loops share the thread and take turns: while the virtual loop turns, the other one has stepped aside, and is
not the running loop; it gets a turn of its own every few milliseconds. So a handler runs in the thread of its test,
as it does in production in the thread of the process, and a breakpoint, a connection of sqlite3 or a patched
attribute mean to it what they mean to the test.
"""

from __future__ import annotations

import asyncio
import math
import time
from asyncio import events, tasks
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import closing, contextmanager
from contextvars import copy_context
from typing import Any, TypeVar

from rocketapp.tasks import Tasks
from rocketapp.testing.outside import DrivenLoop

T = TypeVar("T")
_SLICE = 0.01
"""Seconds of real time after which the other loop gets a turn."""

_PATIENCE = 60.0
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

    def call(self, function: Callable[[], T]) -> T:
        """Call this within a turn of the loop, at the present moment."""

        async def work() -> T:
            return function()

        return self.run(work())

    def close(self) -> None:
        """End what is left on the loop, and the loop."""
        loop = self.loop
        loop.horizon = loop.slice_until = math.inf
        with _aside():
            try:
                for task in (left := asyncio.all_tasks(loop)):
                    task.cancel()
                if left:
                    loop.run_until_complete(asyncio.wait(left, timeout=_PATIENCE))
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
                loop.horizon = loop.time() + _PATIENCE
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
    """One turn of the running loop."""
    if events._get_running_loop() is not None:
        await asyncio.sleep(0)


@contextmanager
def _aside() -> Iterator[asyncio.AbstractEventLoop | None]:
    """The running loop of this thread, and its task, step aside meanwhile."""
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
