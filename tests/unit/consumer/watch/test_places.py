"""Where a call that runs for long stands: in a task or a thread, one by one or many at once."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.watch.slow_calls import places_of_calls
from rocketapp.consumer.workers.async_workers import AsyncWorkers
from rocketapp.consumer.workers.serial import Permit, SerialExecutor, SerialTaker, run
from rocketapp.consumer.workers.thread_workers import ThreadWorkers
from rocketapp.consumer.workers.threads import Threads
from rocketapp.consumer.workers.work import Work
from rocketapp.state.lease import Lease
from rocketapp.state.pauses import Pauses
from rocketapp.tasks import Tasks
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.reports import Reports, message
from tests.unit.scripted import Events, eventually

END = threading.Event()


def in_thread(_: Message) -> None:
    END.wait(10)


async def on_loop(_: Message) -> None:
    async def deeper() -> None:
        await asyncio.Event().wait()

    await deeper()


@pytest.fixture(autouse=True)
def threads_end() -> Iterator[None]:
    END.clear()
    yield
    END.set()


def permit() -> Permit:
    lease = Lease(lasts=100.0, renew_interval=50.0)
    lease.granted(asyncio.get_running_loop().time())
    return Permit(lease)


@pytest.mark.parametrize("one_by_one", [False, True], ids=["at once", "one by one"])
@pytest.mark.parametrize(("call", "offset"), [(in_thread, 1), (on_loop, 2)], ids=["thread", "loop"])
async def test_the_users_line_is_found_by_the_item(call: Any, offset: int, one_by_one: bool) -> None:
    item, tasks = message(0), Tasks(Events())
    stop: Callable[[], Any]
    handler = Handler(subscription("app:settle"), call)
    if one_by_one:
        threads = None if call is on_loop else Threads("handler", 1)
        taker, allowed = SerialTaker(SerialExecutor(handler, threads), Reports()), permit()
        allowed.taker = taker
        tasks.start(run(deque([(taker, item)]), 1, allowed), "run")
        stop = (lambda: None) if threads is None else threads.stop
    else:
        workers = (
            AsyncWorkers(handler, tasks, Pauses()) if call is on_loop else ThreadWorkers(handler, Events(), Pauses())
        )
        workers.submit(Work([item], Reports()))
        stop = workers.stop
    place = f"test_places.py:{call.__code__.co_firstlineno + offset}"
    await eventually(lambda: places_of_calls().get(id(item)) == place)
    assert places_of_calls()[id(item)] == place
    END.set()
    await tasks.close()
    if (stopping := stop()) is not None:
        await stopping
    await eventually(lambda: not [one for one in threading.enumerate() if one.name.startswith("handler")])


async def test_without_a_call_there_is_no_place() -> None:
    assert places_of_calls() == {}
