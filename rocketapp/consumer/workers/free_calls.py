"""The calls that one orderly or polled handler may run at once, one for each queue, and waiting for a free one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from rocketapp.tasks import scope


class FreeCalls:
    """Like a semaphore, whose size can be changed. Those that wait get a call in the order of their coming.

    Threads may take a call and give one back: each does so in one step, without a lock.
    """

    def __init__(self, most: int) -> None:
        self.most: int = most
        self._free = deque(range(most))
        self._surplus = 0
        """Calls that run beyond a smaller size: they are not given back."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<FreeCalls: {len(self._free)} of {self.most} free, {len(self._waiting)} waiting>"

    def locked(self) -> bool:
        """Whether `acquire` has to wait."""
        return not self._free or bool(self._waiting)

    def take(self) -> bool:
        """Take a call, if one is free."""
        if self._waiting:
            return False
        try:
            self._free.pop()
        except IndexError:
            return False
        return True

    async def acquire(self) -> bool:
        """Take a call, as soon as one is free."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._give()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # it was ours already
            raise
        return True

    def release(self) -> None:
        """Give a call back."""
        if self._surplus > 0:
            self._surplus -= 1
            return
        self._free.append(0)
        if self._waiting:
            with contextlib.suppress(RuntimeError, IndexError):  # the loop is closed, or has seen to it
                self._waiting[0].get_loop().call_soon_threadsafe(self._give)

    def resize(self, most: int) -> None:
        """At most this number at once from now on; what runs beyond that ends first."""
        more, self.most = most - self.most, most
        for _ in range(-more):
            try:
                self._free.pop()
            except IndexError:
                self._surplus += 1
        for _ in range(more):
            self.release()
        self._give()

    def _give(self) -> None:
        while self._waiting and (self._free or self._waiting[0].done()):
            turn = self._waiting.popleft()
            if not turn.done():
                try:
                    self._free.pop()
                except IndexError:
                    self._waiting.appendleft(turn)  # a thread was faster
                    return
                turn.set_result(None)


async def call_before(free_calls: FreeCalls, ended: asyncio.Future[None]) -> bool:
    """Wait for a free call and take it; False, with no call taken, when `ended` is done before."""
    try:
        async with scope(free_calls.acquire()) as (acquiring,):
            await asyncio.wait([acquiring, ended], return_when=asyncio.FIRST_COMPLETED)
            is_taken = acquiring.done()
    except asyncio.CancelledError:
        # Also at the end of the scope, which takes a turn of the loop.
        if acquiring.done() and not acquiring.cancelled():
            free_calls.release()
        raise
    return is_taken
