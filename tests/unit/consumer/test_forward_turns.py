"""Turns of messages that are forwarded."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from rocketapp.consumer.rollout.forward import taken_before
from tests.unit.scripted import in_virtual_time


@pytest.mark.parametrize("turns", range(8))
@in_virtual_time
async def test_a_wait_that_is_cancelled_at_any_turn_of_the_loop_leaves_no_turn_taken(turns: int) -> None:
    turn = asyncio.Semaphore(1)
    assert await turn.acquire()
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(taken_before(turn, ended))
    await asyncio.sleep(1)
    turn.release()
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        if await waiting:
            turn.release()
    await asyncio.sleep(1)
    assert not turn.locked()
