"""Processes that share one loop: they can be frozen, thawed and killed like real ones.

Every task and every callback belongs to the process in whose context it was made. While a process is frozen
(SIGSTOP) what falls due for it waits; thawed, it runs in the order in which it fell due. A killed process
(SIGKILL) is frozen for ever: no `finally` of it runs, and no other process is told.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar

from rocketapp.testing.virtual_time import VirtualTimeLoop

T = TypeVar("T")

_process: ContextVar[Process | None] = ContextVar("simulated process", default=None)


class Process:
    """One simulated process."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_frozen = self.is_dead = False
        self.waiting: list[_Turn] = []
        """What fell due while it was frozen."""
        self.at_burial: list[Callable[[], None]] = []
        """What ends that is neither a task nor a callback of it."""
        self._tasks: list[asyncio.Task[Any]] = []
        self._prune_at = 1000
        self._context: Context = copy_context()
        self._context.run(_process.set, self)

    def __repr__(self) -> str:
        return f"<Process {self.name}: {'dead' if self.is_dead else 'frozen' if self.is_frozen else 'alive'}>"

    def start(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run it as a part of this process."""
        return asyncio.get_running_loop().create_task(coroutine, name=self.name, context=self._context.copy())

    def own(self, task: asyncio.Task[Any]) -> None:
        """This task is a part of it."""
        self._tasks.append(task)
        if len(self._tasks) > self._prune_at:
            self._tasks = [task for task in self._tasks if not task.done()]
            self._prune_at = 2 * len(self._tasks) + 1000

    def unended(self) -> list[asyncio.Task[Any]]:
        """Its tasks that have not ended."""
        return [task for task in self._tasks if not task.done()]

    def freeze(self) -> None:
        self.is_frozen = True

    def thaw(self) -> None:
        if self.is_dead:
            raise RuntimeError(f"{self.name} is dead")
        self.is_frozen = False
        waiting, self.waiting = self.waiting, []
        for turn in waiting:
            asyncio.get_running_loop().call_soon(turn.late, context=turn.context)

    def kill(self) -> None:
        """Nothing of it runs any more."""
        self.is_frozen = self.is_dead = True

    def bury(self) -> None:
        """Take a dead process's threads and coroutines apart, so that the interpreter does not complain later."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, ProcessLoop)
        told, known = loop.problems, len(loop.problems)
        while self.at_burial:
            self.at_burial.pop()()
        while self._tasks:
            task = self._tasks.pop()
            if not task.done():
                # The interpreter's own flag: it will never be finished, and that is right.
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                self._close(task.get_coro())
        self.waiting.clear()
        # Answers that failed as it died, and that it never looked at.
        del told[known:]

    def _close(self, coroutine: Any) -> None:
        # Every `finally` that wants to await something makes one attempt fail.
        for _ in range(100):
            with contextlib.suppress(BaseException):
                self._context.run(coroutine.close)
            if inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED:
                return
        raise RuntimeError(f"{coroutine} of {self.name} cannot be closed")


class _Turn:
    """One callback of a process."""

    __slots__ = ("_args", "_callback", "_process", "context", "handle")

    def __init__(self, process: Process, callback: Callable[..., Any], args: Any, context: Context) -> None:
        self._process, self._callback, self._args, self.context = process, callback, args, context
        self.handle: asyncio.Handle

    def __call__(self) -> None:
        if self._process.is_frozen:
            self._process.waiting.append(self)
        else:
            self._callback(*self._args)

    def late(self) -> None:
        """Its process was thawed. What ran before it may have cancelled it."""
        if not self.handle.cancelled():
            self()


class ProcessLoop(VirtualTimeLoop):
    """A virtual loop that knows whose turn it is."""

    def __init__(self) -> None:
        super().__init__()
        self._jumping.looks = False  # nothing comes from outside: a simulated thread runs while the loop waits for it
        self.problems: list[str] = []
        """What went wrong and was not caught."""
        self.processes: dict[Process, None] = {}
        self.tasks: list[asyncio.Task[Any]] = []
        """Of the simulation itself, which directs the others."""
        self.set_exception_handler(self._complain)
        self.set_task_factory(_make_task)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        context = copy_context() if context is None else context
        process = context.get(_process)
        if process is None:
            return super().call_soon(callback, *args, context=context)
        turn = _Turn(process, callback, args, context)
        turn.handle = super().call_soon(turn, context=context)
        return turn.handle

    def call_soon_threadsafe(  # type: ignore[override]
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        """From a simulated thread, which runs only while the loop waits for it."""
        context = copy_context() if context is None else context
        process = context.get(_process)
        if process is not None and process.is_dead:
            raise RuntimeError(f"{process.name} is dead")
        return self.call_soon(callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        context = copy_context() if context is None else context
        process = context.get(_process)
        if process is None:
            return super().call_at(when, callback, *args, context=context)
        turn = _Turn(process, callback, args, context)
        handle = super().call_at(when, turn, context=context)
        turn.handle = handle
        return handle

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        """A process that is dead cleans nothing up."""
        process = _process.get()
        if process is None or not process.is_dead:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]

    async def clear(self) -> None:
        """Leave nothing behind, also of a simulation that failed in the middle."""
        for process in self.processes:
            process.kill()
            process.bury()
        director = Process("director")
        for task in self.tasks:
            if task is not asyncio.current_task():
                director.own(task)
        director.bury()

    def _complain(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.problems.append(f"{context.get('message')}: {error!r}" if error else str(context.get("message")))


def _make_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, context: Context | None = None, **options: Any
) -> asyncio.Task[Any]:
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context, **options)
    process = _process.get() if context is None else context.get(_process)
    assert isinstance(loop, ProcessLoop)
    if process is None:
        loop.tasks.append(task)
    else:
        process.own(task)
        loop.processes[process] = None
    return task


def run_simulated(main: Callable[[], Coroutine[Any, Any, T]], *, limit: float = 864_000.0) -> T:
    """Run a simulation to its end; `main` stops what lives and buries what is dead."""
    loop = ProcessLoop()

    async def bounded() -> T:
        async with asyncio.timeout(limit):
            return await main()

    try:
        result = loop.run_until_complete(bounded())
        if loop.problems:
            raise AssertionError("nobody caught: " + "; ".join(loop.problems[:5]))
        return result
    finally:
        loop.run_until_complete(loop.clear())
        loop.close()
