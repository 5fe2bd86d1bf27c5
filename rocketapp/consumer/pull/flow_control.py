"""Closed pull gates and who waits for them to open.

While somebody waits, the process queues of the group report that messages were finished;
as long as all gates are open they report nothing, and finishing costs nothing extra.
"""

from __future__ import annotations

import asyncio

from rocketapp.state.cache_budget import CacheBudget
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.pull_gate import PullGate
from rocketapp.wire.record import Message

_OTHERS = 0.05
"""Seconds between looks at a budget that other groups of the app have filled: their queues do not report here."""


class Flow:
    """Waits for process queues to become small enough."""

    def __init__(self, gate: PullGate, budget: CacheBudget) -> None:
        self._gate, self._budget = gate, budget
        self._loop = asyncio.get_running_loop()
        self._queues: dict[int, ProcessQueue[Message]] = {}
        self._waiting: dict[asyncio.Event, tuple[ProcessQueue[Message], bool]] = {}
        self._checking = False
        self._look: asyncio.TimerHandle | None = None

    def join(self, queue: ProcessQueue[Message]) -> None:
        """This queue is pulled for from now on."""
        self._queues[id(queue)] = queue
        self._budget.join(queue)
        if self._waiting:
            queue.watch(self._progress)

    def leave(self, queue: ProcessQueue[Message]) -> None:
        """It is not pulled for any more."""
        self._queues.pop(id(queue), None)
        queue.unwatch(self._progress)

    def forget(self, queue: ProcessQueue[Message]) -> None:
        """What it held is free."""
        self.leave(queue)
        self._budget.leave(queue)
        self._progress()

    def took(self, size: int) -> None:
        """So many bytes were put into one of the queues."""
        self._budget.took(size)

    def closed_by(self, queue: ProcessQueue[Message], *, orderly: bool) -> str | None:
        """What forbids the next pull."""
        return self._gate.closed_by(queue, orderly=orderly)

    async def opened(self, queue: ProcessQueue[Message], *, orderly: bool) -> None:
        """Wait until the next pull is allowed."""
        event = asyncio.Event()
        if not self._waiting:
            self._watch(True)
        self._waiting[event] = queue, orderly
        try:
            self._check()
            await event.wait()
        finally:
            del self._waiting[event]
            if not self._waiting:
                self._watch(False)
                self._look_later(False)

    def _watch(self, watch: bool) -> None:
        for queue in self._queues.values():
            if watch:
                queue.watch(self._progress)
            else:
                queue.unwatch(self._progress)

    def _progress(self) -> None:
        # Many messages may be finished in one turn of the loop: look once.
        if not self._checking and self._waiting:
            self._checking = True
            self._loop.call_soon(self._check)

    def _check(self) -> None:
        self._checking = False
        # Asked once: a full budget walks over all queues of the app, and as many may wait.
        full = bool(self._waiting) and self._budget.full
        if not full:
            for event, (queue, orderly) in self._waiting.items():
                if self._gate.closed_by(queue, orderly=orderly, was_closed=True) is None:
                    event.set()
        self._look_later(full)

    def _look_later(self, look: bool) -> None:
        if self._look is not None:
            self._look.cancel()
        self._look = self._loop.call_later(_OTHERS, self._check) if look else None
