"""Workers of an async handler, when cancellation does not go its usual way."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.model.event import LoopFailed
from rocketapp.tasks import PATIENCE
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.reports import OneCalled, Reports, message
from tests.unit.scripted import Events, eventually, in_virtual_time

Call = Callable[[Message], Awaitable[object]]


class Bench(Reports):
    """Workers of one handler, and what they report."""

    def __init__(self, call: Call, *, concurrency: int = 1) -> None:
        super().__init__()
        self.events = Events()
        self.called = OneCalled(Handler(subscription(concurrency=concurrency), call), self, self.events)
        self.workers = self.called.callers

    def submit(self, *offsets: int) -> None:
        self.called.submit(*map(message, offsets))


@in_virtual_time
async def test_workers_report_every_call_to_the_acks() -> None:
    error = ValueError()

    async def call(message: Message) -> object:
        if message.offset == 1:
            raise error
        return "text" if message.offset == 2 else None

    bench = Bench(call)
    bench.submit(0, 1, 2, 3)
    await eventually(lambda: bench.finished == [0, 3])
    assert bench.ended_calls == [(1, error, True), (2, "text", False)]
    await bench.workers.stop()


@in_virtual_time
async def test_a_handler_that_swallows_its_cancellation_holds_up_no_stop_and_is_called_no_more() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return

    bench = Bench(call)
    bench.submit(0, 1, 2)
    bench.submit(3)
    await eventually(lambda: called == [0])
    async with asyncio.timeout(5):
        await bench.workers.stop()
    assert called == [0]


@in_virtual_time
async def test_a_handler_that_cancels_its_own_task_costs_no_worker() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    bench = Bench(call)
    for offset in range(3):
        bench.submit(offset)
        await asyncio.sleep(1)
    assert called == [0, 1, 2]
    await bench.workers.stop()


@in_virtual_time
async def test_handlers_that_go_on_after_their_cancellation_hold_up_a_stop_for_a_second_and_are_named() -> None:
    release = asyncio.Event()

    async def call(_: Message) -> None:
        while not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    bench = Bench(call, concurrency=3)
    bench.submit(0, 1, 2)
    await eventually(lambda: len(bench.workers.in_flight()) == 3)
    began = asyncio.get_running_loop().time()
    await bench.workers.stop()
    assert asyncio.get_running_loop().time() - began == pytest.approx(PATIENCE)
    (told,) = bench.events
    assert isinstance(told, LoopFailed)
    assert told.loop == "handler handler"
    assert "left behind" in told.error
    release.set()
    await eventually(lambda: not bench.workers.in_flight())


@in_virtual_time
async def test_runs_that_were_withdrawn_while_every_call_hangs_are_not_kept() -> None:
    async def call(_: Message) -> None:
        await asyncio.sleep(1e9)

    bench = Bench(call)
    bench.submit(0)
    await asyncio.sleep(1)
    runs: list[weakref.ref[Any]] = []
    for offset in range(1, 100):
        run = bench.called.submit(message(offset))
        runs.append(weakref.ref(run))
        run.withdraw()
        del run
        await asyncio.sleep(0)
    assert sum(run() is not None for run in runs) <= 1
    await bench.workers.stop()


@in_virtual_time
async def test_a_worker_that_is_closed_from_outside_says_nothing_of_its_call() -> None:
    async def call(_: Message) -> None:
        await asyncio.Event().wait()

    bench = Bench(call)
    bench.submit(0)
    await asyncio.sleep(1)
    (task,) = [task for task in asyncio.all_tasks() if task.get_name() == "handlers"]
    coroutine = task.get_coro()
    assert coroutine is not None
    coroutine.close()  # as the collector does, which may run while the loop does
    assert bench.ended_calls == []
    task.cancel()
    await asyncio.wait([task])
