"""Workers of one async handler: a set of coroutines that drain the same work.

A worker awaits the handler itself. As long as no call suspends, one worker runs through
everything and nothing is scheduled. When a call suspends, the loop goes on with `_spread`,
which wakes as many other workers as there are items left: so 64 slow calls overlap, and a
fast handler costs no task, future or lock per message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.stats import HandlerStats
from rocketapp.consumer.workers.work import Settle, Work
from rocketapp.tasks import Tasks

_CHUNK = 32
"""Items that a worker takes before it looks at the clock."""

_TURN = 0.005
"""Seconds that workers may keep the loop before they let others run."""


class _Slot:
    """What one worker has in hand."""

    __slots__ = ("item",)

    def __init__(self) -> None:
        self.item: Any = None


class AsyncWorkers:
    """Up to `concurrency` calls of one async handler at once."""

    def __init__(self, stats: HandlerStats, settle: Settle, tasks: Tasks) -> None:
        subscription = stats.handler.subscription
        self.stats = stats
        self._settle, self._tasks = settle, tasks
        self._call = limited(stats.handler)
        self.batch = None if subscription.batch is None else (subscription.batch, subscription.batch_wait)
        """Most messages of a batch and seconds to wait for them; None for a handler of single messages."""
        self._single = self.batch is None
        self._most, self._name = subscription.concurrency, stats.name
        self._loop = asyncio.get_running_loop()
        self._ready: deque[Work] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._slots: list[_Slot] = []
        self._spreading = False
        self._yielding = False
        self._turn_end = 0.0
        self._cancelled = False
        self._running: dict[asyncio.Task[None], None] = {}

    def __repr__(self) -> str:
        return f"<AsyncWorkers {self._name}: {len(self._slots)} workers, {len(self._idle)} idle>"

    def submit(self, work: Work) -> None:
        """Hand over work; it starts at the loop's next turn."""
        self._ready.append(work)
        self._wake(1)
        self._ask_to_spread()

    def in_hand(self) -> list[Any]:
        """Per worker what it works on, or None."""
        return [slot.item for slot in self._slots]

    async def stop(self) -> None:
        """Cancel what runs. Cancellation is not a failure: nothing of it is acknowledged."""
        self._cancelled = True
        for work in self._ready:
            work.withdraw()
        self._ready.clear()
        await self._tasks.end(list(self._running))

    def _wake(self, count: int) -> None:
        idle, slots = self._idle, self._slots
        while count > 0:
            if idle:
                waiter = idle.pop()
                if waiter.done():
                    continue
                waiter.set_result(None)
            elif len(slots) < self._most and not self._cancelled:
                slot = _Slot()
                slots.append(slot)
                task = self._tasks.start(self._work(slot), f"handler {self._name}")
                self._running[task] = None
                task.add_done_callback(self._running.pop)
            else:
                return
            count -= 1

    def _ask_to_spread(self) -> None:
        # A callback behind those of the workers just woken: it sees what they left because a call suspended.
        if not self._spreading:
            self._spreading = True
            self._loop.call_soon(self._spread)

    def _spread(self) -> None:
        self._spreading = False
        if self._ready and not self._yielding:
            self._wake(sum(work.left for work in self._ready))

    async def _work(self, slot: _Slot) -> None:
        try:
            while True:
                await self._drain(slot)
                if self._cancelled:
                    return  # the handler has swallowed the cancellation by which `stop` ends its worker
                waiter = self._loop.create_future()
                self._idle.append(waiter)
                await waiter
        finally:
            # Whoever cancelled this worker - its own handler, or a loop that is being closed - ends it. Another one
            # takes its place when there is work.
            self._slots.remove(slot)
            if self._ready and not self._cancelled:
                self._ask_to_spread()

    async def _drain(self, slot: _Slot) -> None:
        """Work until nothing is left to start."""
        ready, stats, call, single = self._ready, self.stats, self._call, self._single
        now = self._loop.time
        self._turn_end = now() + _TURN
        while ready:
            work = ready[0]
            queue = work.process_queue
            finish = queue.finish
            for item in islice(work.items, _CHUNK):
                slot.item = item
                try:
                    result = await call(item)
                except BaseException as error:
                    self._raised(work, item, error)
                else:
                    if result is None and single:
                        stats.handled += 1
                        finish(item)
                    else:
                        self._settle(stats, queue, item, result, False)
            slot.item = None
            if ready and ready[0] is work and not work.left:
                ready.popleft()
            if now() >= self._turn_end:
                await self._let_others_run()

    async def _let_others_run(self) -> None:
        self._yielding = True
        try:
            await asyncio.sleep(0)
        finally:
            self._yielding = False
        self._turn_end = self._loop.time() + _TURN
        # Whatever this worker does next, others are asked again behind it.
        self._ask_to_spread()

    def _raised(self, work: Work, item: Any, error: BaseException) -> None:
        if isinstance(error, GeneratorExit) and not self._loop.is_running():
            raise error  # not the handler's: this coroutine is being thrown away
        if isinstance(error, asyncio.CancelledError):
            if self._cancelled:
                raise error
            # Not ours, so a failure like any other: a handler may let a cancellation of its own escape.
            self._settle(self.stats, work.process_queue, item, error, True)
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise error
            return
        self._settle(self.stats, work.process_queue, item, error, True)


def limited(handler: Handler) -> Callable[[Any], Awaitable[object]]:
    """The handler's call, ended after its timeout if it has one."""
    call: Callable[[Any], Awaitable[object]] = handler.call
    seconds = handler.subscription.timeout
    if seconds is None:
        return call

    async def within_time(item: Any) -> object:
        async with asyncio.timeout(seconds):
            return await call(item)

    return within_time
