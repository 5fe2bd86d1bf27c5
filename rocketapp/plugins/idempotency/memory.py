"""Marks in the memory of this process: fast, and gone with it. Other processes do not see them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from rocketapp.plugin import Answer, Claim
from rocketapp.plugins.idempotency.decisions import Marks

_SWEEP = 10.0
"""Seconds between two looks for marks that have expired."""


class MemoryStore:
    """An IdempotencyStore whose methods never suspend."""

    def __init__(self, most: int) -> None:
        self._marks = Marks(most)
        self._next_sweep = 0.0

    def __repr__(self) -> str:
        return f"<MemoryStore: {len(self._marks)} marks>"

    async def open(self) -> None:
        """Nothing is to be opened."""

    async def close(self) -> None:
        """Nothing is to be closed: the marks go with the store, and each run of an app has its own."""

    async def claim(self, claims: Sequence[Claim], *, lease: float) -> Sequence[Answer]:
        now = asyncio.get_running_loop().time()
        if now >= self._next_sweep:
            self._marks.expire(now)
            self._next_sweep = now + _SWEEP
        return [self._marks.claim(claim, lease=lease, now=now) for claim in claims]

    async def done(self, keys: Sequence[str], *, expiry: float) -> None:
        now = asyncio.get_running_loop().time()
        for key in keys:
            self._marks.done(key, expiry=expiry, now=now)

    async def release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self._marks.release(claim)
