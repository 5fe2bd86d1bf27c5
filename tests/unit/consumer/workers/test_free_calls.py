"""Free calls that are waited for."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from rocketapp.consumer.workers.free_calls import FreeCalls, call_before
from tests.unit.scripted import in_virtual_time


@pytest.mark.parametrize("turns", range(8))
@in_virtual_time
async def test_a_wait_that_is_cancelled_at_any_turn_of_the_loop_leaves_no_call_taken(turns: int) -> None:
    free_calls = FreeCalls(1)
    assert free_calls.take()
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(call_before(free_calls, ended))
    await asyncio.sleep(1)
    free_calls.release()
    for _ in range(turns):
        await asyncio.sleep(0)
    waiting.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        if await waiting:
            free_calls.release()
    await asyncio.sleep(1)
    assert free_calls.take()
