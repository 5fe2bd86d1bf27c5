"""The one file that makes tasks: each has one owner, which keeps it and awaits its end.

`Tasks` owns tasks that live as long as an object does; `scope` owns those of one block.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from rocketapp.model.event import LoopFailed, Observe

T = TypeVar("T")
PATIENCE = 1.0
"""Seconds that a task may take to end after it was cancelled."""
_FIRST_LOOK, _LONGEST_LOOK = 0.001, 0.05
"""Seconds until the second look at what is waited for, and the longest time between later looks."""


class Tasks:
    """The tasks of one owner. An exception that leaves one of them is reported and ends no other."""

    def __init__(self, observe: Observe | None = None) -> None:
        """`observe` receives the failures; with None they belong to the callers that await the tasks."""
        self._observe = observe
        # In the order of their start, so that two equal runs end them in equal order.
        self._running: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def running(self) -> list[asyncio.Task[Any]]:
        """The tasks that have not ended, in the order of their start."""
        return list(self._running)

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task. The caller may also await or cancel it."""
        # The loop makes the task, so that a task factory hears of it.
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running[task] = None
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancel the tasks that still run and wait until they have ended."""
        while self._running:
            await self.end(list(self._running))

    async def end(self, tasks: Sequence[asyncio.Task[Any]], name: str | None = None) -> None:
        """Cancel these tasks and wait until they have ended, for PATIENCE seconds at most.

        A task may catch its cancellation and continue, for example in a handler: it is reported and left behind.
        Without `observe` it waits without a limit. `name`: the name for the report, instead of the tasks' own names.
        """
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=None if self._observe is None else PATIENCE)
        left = [task for task in tasks if not task.done()]
        for who in dict.fromkeys(name or task.get_name() for task in left):
            self._report(who, f"it was cancelled and has not ended within {PATIENCE:g} s: it is left behind")
        for task in left:
            self._running.pop(task, None)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._report(task.get_name(), f"{type(error).__name__}: {error}")

    def _report(self, name: str, error: str) -> None:
        if self._observe is not None:
            self._observe(LoopFailed(name, error))


@contextlib.asynccontextmanager
async def scope(*coroutines: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run coroutines during a block. At its end those that still run are cancelled, and all are awaited.

    Their results and exceptions belong to the block: what it does not ask for is dropped.
    """
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(coroutine) for coroutine in coroutines]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def is_set_by(event: asyncio.Event, at: float | None) -> bool:
    """Wait for the event until the loop's time is `at` (None: without limit). Returns whether it was set."""
    try:
        async with asyncio.timeout_at(at):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def until(is_so: Callable[[], bool]) -> None:
    """Wait until `is_so` returns True: polled after a millisecond first, later 20 times a second."""
    wait = _FIRST_LOOK
    while not is_so():
        await asyncio.sleep(wait)
        wait = min(2 * wait, _LONGEST_LOOK)


async def repeat(seconds: float, call: Callable[[], object]) -> None:
    """Call this every `seconds`, until cancelled. What it raises ends the repetition, and is raised.

    For calls that do not wait. Cheaper than a loop that sleeps: no task is woken, only a timer fires.
    """
    loop = asyncio.get_running_loop()
    failed: asyncio.Future[None] = loop.create_future()
    timer: asyncio.TimerHandle | None = None

    def due() -> None:
        nonlocal timer
        timer = loop.call_later(seconds, due)
        try:
            call()
        except Exception as error:
            if not failed.done():
                failed.set_exception(error)

    timer = loop.call_later(seconds, due)
    try:
        await failed
    finally:
        timer.cancel()


async def in_daemon_thread(job: Callable[[], T], name: str) -> T:
    """Run it in a thread of its own, which may hang for ever without keeping the process from ending.

    The interpreter waits for the threads of an executor, so that a disk or a look-up that hangs would keep it. Raises
    what the job raises, and RuntimeError when the process may have no more threads.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(end: Callable[[Any], None], outcome: object) -> None:
        if not done.done():
            end(outcome)

    def run() -> None:
        end: Callable[[Any], None] = done.set_result
        outcome: object
        try:
            outcome = job()
        except Exception as error:
            end, outcome = done.set_exception, error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(settle, end, outcome)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await done
