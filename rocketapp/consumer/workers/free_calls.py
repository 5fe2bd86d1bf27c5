"""Waits for a free call of a handler without holding up the end of a queue."""

from __future__ import annotations

import asyncio

from rocketapp.tasks import scope


async def call_before(free_calls: asyncio.Semaphore, ended: asyncio.Future[None]) -> bool:
    """Wait for a free call and take it; False, with no call taken, when `ended` is done before."""
    async with scope(free_calls.acquire()) as (acquiring,):
        try:
            await asyncio.wait([acquiring, ended], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if acquiring.done():
                free_calls.release()
            raise
        return acquiring.done()
