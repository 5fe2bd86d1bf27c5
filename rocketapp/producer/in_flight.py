"""Back-pressure: limits how many sends, and how many bytes of bodies, are under way at once.

A send that finds room only increments counters. Those that wait proceed in the order in which they came.
"""

from __future__ import annotations

import asyncio
from collections import deque


class InFlight:
    """The sends of one producer that are under way."""

    __slots__ = ("_bytes", "_count", "_most", "_most_bytes", "_waiting")

    def __init__(self, *, most: int, most_bytes: int) -> None:
        """0: without a limit. A body that alone is larger than `most_bytes` goes alone."""
        self._most, self._most_bytes = most or 1 << 62, most_bytes or 1 << 62
        self._count = self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __repr__(self) -> str:
        return f"<InFlight: {self}>"

    def __str__(self) -> str:
        waiting = len(self._waiting)
        return f"{self._count} sends of {self._bytes} bytes are under way and {waiting} wait (producer.max_in_flight)"

    def enter(self, size: int) -> bool:
        """Count a send in if there is room; False when it has to wait. Every send that entered must leave."""
        if self._waiting or not self._fits(size):
            return False
        self._count += 1
        self._bytes += size
        return True

    async def wait(self, size: int, until: float) -> None:
        """Wait for room, and count the send in.

        Raises TimeoutError at `until` (the loop's time): not counted in then.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (size, turn)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout_at(until):
                await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self.leave(size)  # its turn came with the cancellation
            elif entry in self._waiting:
                self._waiting.remove(entry)
                self._let_in()  # a smaller one behind it may fit
            raise

    def leave(self, size: int) -> None:
        """A send has ended."""
        self._count -= 1
        self._bytes -= size
        if self._waiting:
            self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.done():
                self._count += 1
                self._bytes += size
                turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._count < self._most and (self._bytes + size <= self._most_bytes or not self._count)
