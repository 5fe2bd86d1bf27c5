"""Free calls for which tasks of the loop wait, in the order of their coming."""

from __future__ import annotations

import asyncio
from collections import deque

from rocketapp.tasks import scope


class FreeCalls:
    """At most so many calls at once; the number can be changed."""

    def __init__(self, most: int) -> None:
        self.most: int = most
        self._running = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<FreeCalls: {self._running} of {self.most} run, {len(self._waiting)} waiting>"

    def locked(self) -> bool:
        """Whether `acquire` has to wait."""
        return self._running >= self.most or bool(self._waiting)

    def take(self) -> bool:
        """Take a call, if one is free and nobody waits."""
        if self.locked():
            return False
        self._running += 1
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
            raise
        return True

    def release(self) -> None:
        """Give a call back."""
        self._running -= 1
        self._give()

    def resize(self, most: int) -> None:
        """At most this number at once from now on; what runs beyond that ends first."""
        self.most = most
        self._give()

    def _give(self) -> None:
        while self._waiting and (self._running < self.most or self._waiting[0].done()):
            turn = self._waiting.popleft()
            if not turn.done():
                self._running += 1
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
