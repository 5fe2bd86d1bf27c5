"""Owners of tasks: every task of the room is started here, kept, and awaited at the end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from rocketapp.model.event import LoopFailed, Observe


class Tasks:
    """Some tasks with one owner. What escapes from one is reported and harms no other."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        # In the order of their start, so that two equal runs end them in equal order.
        self._running: dict[asyncio.Task[Any], None] = {}

    def __len__(self) -> int:
        return len(self._running)

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run it; whoever starts it may also await or cancel the task."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._running[task] = None
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancel what still runs and wait until it ended."""
        while running := list(self._running):
            for task in running:
                task.cancel()
            await asyncio.wait(running)

    async def join(self) -> None:
        """Wait until everything ended by itself."""
        while running := list(self._running):
            await asyncio.wait(running)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._observe(LoopFailed(task.get_name(), f"{type(error).__name__}: {error}"))


def forget_cancellation() -> None:
    """Let the current task live on: whoever cancelled it was not its owner."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
