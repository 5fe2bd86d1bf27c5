"""Calls of one orderly handler: on the loop, or in threads a burst at a time.

Both call for one item after the other, stop before the next one as soon as the assignment
or its lease has ended, and hand every item that was not simply done to `Turns.settle`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Protocol

from rocketapp.consumer.stats import HandlerStats
from rocketapp.consumer.workers.async_workers import limited
from rocketapp.consumer.workers.threads import Threads
from rocketapp.state.lease import Lease
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.tasks import forget_cancellation
from rocketapp.wire.record import Message

_FIRST_LOOK, _LATER_LOOK = 0.002, 0.25
"""Seconds until a burst that is not over is looked at for what it has finished, and at most between later looks."""


class Turns(Protocol):
    """One assignment, as the calls for its messages see it."""

    queue: ProcessQueue[Message]
    lease: Lease
    ended: bool
    """No further message may start."""
    abandoned: bool
    """Nobody waits any more for what still runs."""
    item: Any
    """What the handler works on."""

    @property
    def is_running(self) -> bool:
        """Whether the loop still runs."""
        ...

    async def settle(self, calls: Calls, item: Any, result: object, raised: bool) -> bool:
        """See an item through that was not simply done; False when the assignment ended before it was."""
        ...


class CallsOnLoop:
    """Calls of an async handler."""

    def __init__(self, stats: HandlerStats) -> None:
        subscription = stats.handler.subscription
        self.stats = stats
        self.batch = None if subscription.batch is None else (subscription.batch, subscription.batch_wait)
        self.slots = asyncio.Semaphore(subscription.concurrency)
        """One per queue that may call at once."""
        self._call = limited(stats.handler)
        self._now = asyncio.get_running_loop().time

    async def run(self, turns: Turns, items: Sequence[Any]) -> bool:
        """Call for every item; False when the assignment ended before the last."""
        call, stats, now, single = self._call, self.stats, self._now, self.batch is None
        lease, finish = turns.lease, turns.queue.finish
        for item in items:
            if turns.ended or now() >= lease.trusted_until:
                return False
            turns.item = item
            raised = False
            try:
                result = await call(item)
            except BaseException as error:
                result, raised = _failed(turns, error), True
            turns.item = None
            if result is None and single:
                stats.handled += 1
                finish(item)
            elif not await turns.settle(self, item, result, raised):
                return False
        return True

    async def once(self, turns: Turns, item: Any) -> tuple[object, bool] | None:
        """One more attempt: what came of it, and whether it was raised."""
        turns.item = item
        try:
            return await self._call(item), False
        except BaseException as error:
            return _failed(turns, error), True
        finally:
            turns.item = None

    def stop(self) -> None:
        """No call will follow."""


def _failed(turns: Turns, error: BaseException) -> BaseException:
    """The failure of a handler; raises when it was us who ended it."""
    if isinstance(error, GeneratorExit) and not turns.is_running:
        raise error  # this coroutine is being thrown away
    if isinstance(error, asyncio.CancelledError):
        if turns.abandoned:
            turns.item = None
            raise error
        forget_cancellation()
    return error


class CallsInThreads:
    """Calls of a sync handler. A burst of items goes to a thread, so that going there costs little per item."""

    def __init__(self, stats: HandlerStats) -> None:
        subscription = stats.handler.subscription
        self.stats = stats
        self.batch = None if subscription.batch is None else (subscription.batch, subscription.batch_wait)
        self.slots = asyncio.Semaphore(subscription.concurrency)
        """One per queue that may call at once."""
        self._threads = Threads(f"orderly handler {stats.name}", subscription.concurrency)

    async def run(self, turns: Turns, items: Sequence[Any]) -> bool:
        """Call for every item; False when the assignment ended before the last."""
        at = 0
        while at < len(items):
            burst = await self._burst(turns, items[at:])
            at += burst.count
            if burst.special is None:
                return at == len(items)
            at += 1
            if not await turns.settle(self, *burst.special):
                return False
        return True

    async def once(self, turns: Turns, item: Any) -> tuple[object, bool] | None:
        """One more attempt: what came of it, and whether it was raised; None when the assignment ended first."""
        burst = await self._burst(turns, [item], retry=True)
        return None if burst.special is None else burst.special[1:]

    async def _burst(self, turns: Turns, items: Sequence[Any], *, retry: bool = False) -> _Burst:
        burst = _Burst(self.stats, turns, items, simple=self.batch is None and not retry)
        self._threads.run(burst.work)
        wait = _FIRST_LOOK
        try:
            while not burst.over.done():
                await asyncio.wait([burst.over], timeout=wait)
                burst.collect()
                wait = min(2 * wait, _LATER_LOOK)
        finally:
            # Also when nobody waits any more: what was finished before is done.
            burst.collect()
        return burst

    def stop(self) -> None:
        """No call will follow."""
        self._threads.stop()


Calls = CallsOnLoop | CallsInThreads


class _Burst:
    """Items that one thread works on, one after the other."""

    def __init__(self, stats: HandlerStats, turns: Turns, items: Sequence[Any], *, simple: bool) -> None:
        """`simple`: an item that returns None is finished here."""
        self._stats, self._turns, self._items, self._simple = stats, turns, items, simple
        self._loop = asyncio.get_running_loop()
        self._finished: list[Any] = []
        self.over: asyncio.Future[None] = self._loop.create_future()
        self.special: tuple[Any, object, bool] | None = None
        """The item that ended the burst, what came of it, and whether that was raised."""
        self.count = 0
        """How many items were done before."""

    def work(self) -> None:
        """In a thread."""
        try:
            self._call_all()
            self._turns.item = None
            self._loop.call_soon_threadsafe(self._end)
        except RuntimeError:
            return  # the loop is closed: nobody is left to tell

    def _call_all(self) -> None:
        turns, call, now = self._turns, self._stats.handler.call, self._loop.time
        lease, append = turns.lease, self._finished.append
        for item in self._items:
            if turns.ended or now() >= lease.trusted_until:
                return
            turns.item = item
            try:
                result = call(item)
            except BaseException as error:
                self.special = item, error, True
                return
            if result is not None or not self._simple:
                self.special = item, result, False
                return
            append(item)

    def collect(self) -> None:
        """On the loop: what is finished so far."""
        count = len(self._finished)
        self._turns.queue.finish_all(self._finished[:count])
        del self._finished[:count]
        self._stats.handled += count
        self.count += count

    def _end(self) -> None:
        self.collect()
        if not self.over.done():
            self.over.set_result(None)
