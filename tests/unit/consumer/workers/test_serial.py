"""Executors of orderly handlers: how long a run keeps its call."""

from __future__ import annotations

import asyncio
from collections import deque

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.workers.serial import NOT_STARTED, Permit, SerialExecutor, SerialTaker, run
from rocketapp.consumer.workers.threads import Threads
from rocketapp.state.lease import Lease
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.reports import message


@pytest.mark.parametrize("is_async", [True, False])
def test_a_run_of_slow_calls_gives_its_call_free_after_a_second(is_async: bool) -> None:
    """Otherwise 32 of them keep other queues waiting for minutes."""

    async def story() -> None:
        loop, began = asyncio.get_running_loop(), asyncio.get_running_loop().time()
        seconds, acknowledged, taken = [0.0], list[Message](), list[Message]()
        loop.time = lambda: began + seconds[0]  # type: ignore[method-assign]

        class Done:
            done = staticmethod(acknowledged.append)
            done_all = staticmethod(acknowledged.extend)

        def slow(message: Message) -> None:
            seconds[0] += 0.4
            taken.append(message)

        async def slow_on_loop(message: Message) -> None:
            slow(message)

        declared = subscription(orderly=True, is_async=is_async)
        handler = Handler(declared, slow_on_loop if is_async else slow)
        threads = None if is_async else Threads("handler", 1)
        taker = SerialTaker(SerialExecutor(handler, threads), Done())
        lease = Lease(lasts=1000.0, renew_interval=20.0)
        lease.granted(began)
        permit = Permit(lease)
        permit.taker = taker
        stopped = await run(deque([(taker, message(offset)) for offset in range(32)]), 32, permit)
        assert stopped == NOT_STARTED
        assert len(taken) == len(acknowledged) == 3
        if threads is not None:
            threads.stop()

    asyncio.run(story())
