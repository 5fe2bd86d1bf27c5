"""Owners of tasks: every task of the room is started here, kept, and awaited at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from rocketapp.model.event import LoopFailed, Observe

PATIENCE = 1.0
"""Seconds that a task may take to end after it was cancelled."""


class Tasks:
    """Some tasks with one owner. What escapes from one is reported and harms no other."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        # In the order of their start, so that two equal runs end them in equal order.
        self._running: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Start a task. The caller may also await or cancel it."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running[task] = None
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancel what still runs and wait until it ended."""
        while self._running:
            await self.end(list(self._running))

    async def end(self, tasks: Sequence[asyncio.Task[Any]], name: str | None = None) -> None:
        """Cancel these tasks and wait until they have ended, for PATIENCE seconds at most.

        A task may catch its cancellation and continue, for example in a handler: it is reported and left behind.
        `name`: the name for the report, instead of the tasks' own names.
        """
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=PATIENCE)
        left = [task for task in tasks if not task.done()]
        for who in dict.fromkeys(name or task.get_name() for task in left):
            self._observe(
                LoopFailed(who, f"it was cancelled and has not ended within {PATIENCE:g} s: it is left behind")
            )
        for task in left:
            self._running.pop(task, None)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._observe(LoopFailed(task.get_name(), f"{type(error).__name__}: {error}"))


def forget_cancellation() -> None:
    """Clear the cancellation of the current task, because it did not come from the task's owner."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
