"""The calls that one orderly or polled handler may run at once, one for each queue, and waiting for a free one."""

from __future__ import annotations

import asyncio
from collections import deque

from rocketapp.tasks import scope


class FreeCalls:
    """Like a semaphore, whose size can be changed. Those that wait get a call in the order of their coming."""

    def __init__(self, most: int) -> None:
        self.most: int = most
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<FreeCalls: {self._taken} of {self.most} taken, {len(self._waiting)} waiting>"

    def locked(self) -> bool:
        """Whether `acquire` has to wait."""
        return self._taken >= self.most or bool(self._waiting)

    def take(self) -> bool:
        """Take a call, if one is free."""
        if self.locked():
            return False
        self._taken += 1
        return True

    async def acquire(self) -> bool:
        """Take a call, as soon as one is free."""
        if self.take():
            return True
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release()  # it was ours already
            elif turn in self._waiting:
                self._waiting.remove(turn)
            raise
        return True

    def release(self) -> None:
        """Give a call back."""
        self._taken -= 1
        self._give()

    def resize(self, most: int) -> None:
        """At most this number at once from now on; what runs beyond that ends first."""
        self.most = most
        self._give()

    def _give(self) -> None:
        while self._waiting and self._taken < self.most:
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)


async def call_before(free_calls: FreeCalls, ended: asyncio.Future[None]) -> bool:
    """Wait for a free call and take it; False, with no call taken, when `ended` is done before."""
    async with scope(free_calls.acquire()) as (acquiring,):
        try:
            await asyncio.wait([acquiring, ended], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if acquiring.done():
                free_calls.release()
            raise
        return acquiring.done()
