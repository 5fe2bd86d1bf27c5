"""What a relay has sent and not removed from the table yet: when the process is killed, another sends it once more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager


class Sent:
    """Numbers of messages that are sent and still in the table. Those of all slots are removed together."""

    def __init__(self, remove: Callable[[Sequence[int]], Awaitable[None]], *, most: int) -> None:
        """`remove`: takes rows out of the table. `most`: messages, with those that are being sent."""
        self._remove, self._most = remove, most
        self._numbers: set[int] = set()
        self._under_way = 0
        self._removing = asyncio.Lock()

    @property
    def numbers(self) -> frozenset[int]:
        """They may still be read from the table, and must not be sent again."""
        return frozenset(self._numbers)

    async def room(self) -> None:
        """Return when one more may be sent; then `sending` has to follow without another await.

        Raises what removing raises: while nothing can be removed, nothing more is sent.
        """
        # Remove at half of the limit: the other slots can go on meanwhile.
        if len(self._numbers) * 2 >= self._most and not self._removing.locked():
            await self.remove()
        while self._is_full:
            async with self._removing:
                if self._is_full:
                    await self._remove_all()

    @contextmanager
    def sending(self, number: int) -> Iterator[None]:
        """While it is sent. What raises is not sent."""
        self._under_way += 1
        try:
            yield
            self._numbers.add(number)
        finally:
            self._under_way -= 1

    async def remove(self) -> None:
        """Remove from the table what is sent."""
        async with self._removing:
            await self._remove_all()

    @property
    def _is_full(self) -> bool:
        return len(self._numbers) + self._under_way >= self._most

    async def _remove_all(self) -> None:
        numbers = sorted(self._numbers)
        if numbers:
            await self._remove(numbers)
            self._numbers.difference_update(numbers)
