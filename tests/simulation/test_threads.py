"""Sync handlers in virtual time: what simulations rely on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from rocketapp.wire.record import Message
from tests.simulation.processes import Process, run_simulated
from tests.simulation.stage import Stage, scenario
from tests.simulation.threads import SimulatedThreads, block
from tests.simulation.world import Topic

Main = Callable[[], Coroutine[Any, Any, None]]


def in_a_process(story: Callable[[Process, SimulatedThreads, list[Any]], Coroutine[Any, Any, None]]) -> list[Any]:
    """Run a story with threads of one process; what was written down."""
    written: list[Any] = []

    async def main() -> None:
        process = Process("one")

        async def make() -> SimulatedThreads:
            return SimulatedThreads(2)

        threads = await process.start(make())
        process.at_burial.append(threads.end)
        await story(process, threads, written)
        process.kill()
        process.bury()

    before = threading.active_count()
    run_simulated(main)
    assert threading.active_count() == before
    return written


def test_blocked_jobs_let_virtual_time_pass_and_the_third_waits_for_a_thread() -> None:
    async def story(process: Process, threads: SimulatedThreads, written: list[Any]) -> None:
        loop = asyncio.get_running_loop()

        def job(name: str) -> Callable[[], None]:
            def work() -> None:
                block(3600)
                loop.call_soon_threadsafe(written.append, (loop.time(), name))

            return work

        async def start() -> None:
            for name in "abc":
                threads.run(job(name))

        await process.start(start())
        await asyncio.sleep(3 * 3600)

    began = time.perf_counter()
    assert in_a_process(story) == [(3600, "a"), (3600, "b"), (7200, "c")]
    assert time.perf_counter() - began < 60


def test_threads_of_a_frozen_process_wait_and_those_of_a_dead_one_never_go_on() -> None:
    async def story(process: Process, threads: SimulatedThreads, written: list[Any]) -> None:
        loop = asyncio.get_running_loop()

        def work() -> None:
            for _ in range(10):
                block(1)
                written.append(loop.time())

        async def start() -> None:
            threads.run(work)

        await process.start(start())
        await asyncio.sleep(2.5)
        process.freeze()
        await asyncio.sleep(10)
        process.thaw()
        await asyncio.sleep(1.2)

    assert in_a_process(story) == [1, 2, 12.5, 13.5]


@scenario
async def test_sync_handlers_of_both_kinds_run_side_by_side_or_one_by_one() -> None:
    running: list[int] = []
    most: dict[str, int] = {}

    def behave(message: Message) -> None:
        running.append(message.offset)
        most[message.topic] = max(most.get(message.topic, 0), len(running))
        block(1.0)
        running.remove(message.offset)

    for orderly, width in ((False, 20), (True, 1)):
        stage = Stage(Topic(name="orders", sync=True, orderly=orderly), block=behave)
        most.clear()
        await stage.begin()
        await stage.send("orders", 20, key="one queue")
        await stage.join()
        began = stage.now
        await stage.calm(40)
        assert stage.now - began < 20 / width + 10
        assert most == {"orders": width}
        await stage.end()


@scenario
async def test_a_member_that_is_killed_inside_sync_handlers_ends_their_threads_and_repeats_them() -> None:
    stage = Stage(Topic(name="orders", sync=True), block=lambda message: block(5.0))
    await stage.begin()
    await stage.send("orders", 12)
    member = await stage.join()
    await stage.until(lambda: member.running == 12)
    member.crash()
    await stage.join()
    await stage.calm(30)
    assert len(stage.started()) == 24
    await stage.end()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("handler")]
