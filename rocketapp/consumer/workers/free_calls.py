"""The calls that one handler may run at once, and waiting for a free one."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from rocketapp.tasks import scope


class Calls:
    """At most so many at once; the number can be changed. Threads take and release calls, each in one step."""

    def __init__(self, most: int) -> None:
        self.most: int = most
        self._free: deque[None] = deque([None] * most)
        self._surplus: deque[None] = deque()
        """Calls that run beyond a smaller most: they are not given back."""

    @property
    def is_busy(self) -> bool:
        """As many calls run as may run at once."""
        return not self._free

    def take(self) -> bool:
        """Take a call, if one is free."""
        try:
            self._free.pop()
        except IndexError:
            return False
        return True

    def release(self) -> None:
        """Give a call back."""
        if self._surplus:
            with contextlib.suppress(IndexError):  # another thread was faster
                self._surplus.pop()
                return
        self._free.append(None)

    def resize(self, most: int) -> None:
        """At most this number at once from now on; what runs beyond that ends first."""
        more, self.most = most - self.most, most
        for _ in range(abs(more)):
            found, other = (self._surplus, self._free) if more > 0 else (self._free, self._surplus)
            if found:
                found.pop()
            else:
                other.append(None)


class FreeCalls(Calls):
    """Calls for which one may wait. Those that wait get a call in the order of their coming."""

    def __init__(self, most: int) -> None:
        super().__init__(most)
        self._waiting: deque[asyncio.Future[None]] = deque()

    def __repr__(self) -> str:
        return f"<FreeCalls: {len(self._free)} of {self.most} free, {len(self._waiting)} waiting>"

    def locked(self) -> bool:
        """Whether `acquire` has to wait."""
        return not self._free or bool(self._waiting)

    def take(self) -> bool:
        """Take a call, if one is free and nobody waits."""
        return not self._waiting and super().take()

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
        super().release()
        if self._waiting:
            with contextlib.suppress(RuntimeError, IndexError):  # the loop is closed, or has seen to it
                self._waiting[0].get_loop().call_soon_threadsafe(self._give)

    def resize(self, most: int) -> None:
        """At most this number at once from now on; what runs beyond that ends first."""
        super().resize(most)
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
