"""Tests see it when a loop is called from a thread that is not its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

Call = Callable[[asyncio.AbstractEventLoop], object]
CALLS: list[Call] = [
    lambda loop: loop.call_soon(str),
    lambda loop: loop.call_at(0, str),
    lambda loop: loop.call_later(0, str),
]


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_from_another_thread_fails(call: Call) -> None:
    with pytest.raises(RuntimeError, match="Non-thread-safe"):
        await asyncio.to_thread(call, asyncio.get_running_loop())


async def test_so_does_the_end_of_a_future_that_somebody_awaits() -> None:
    future = asyncio.get_running_loop().create_future()
    future.add_done_callback(str)
    with pytest.raises(RuntimeError, match="Non-thread-safe"):
        await asyncio.to_thread(future.set_result, None)


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_from_its_own_thread_is_no_fault(call: Call) -> None:
    call(asyncio.get_running_loop())
    await asyncio.sleep(0)
    assert asyncio.get_running_loop().is_running()
