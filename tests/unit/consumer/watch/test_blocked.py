"""The line that blocks the event loop is named."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from types import SimpleNamespace

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.watch import slow_calls
from rocketapp.consumer.watch.slow_calls import BlockedLoop
from rocketapp.model.event import Event, LoopBlocked
from rocketapp.plugins.log_lines import line_of
from rocketapp.user_line import place_of_frame
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import subscription
from tests.unit.consumer.reports import OneCalled, Reports, message
from tests.unit.scripted import HANGS, Events, eventually, in_virtual_time


class Told(Events):
    """What is told of the line that blocks; a busy machine may keep the loop from other ones."""

    def __init__(self) -> None:
        self.has_begun = threading.Event()

    def __call__(self, event: Event) -> None:
        if isinstance(event, LoopBlocked) and event.place == LINE:
            self.append(event)
            self.has_begun.set()

    def blocks(self) -> None:
        self.has_begun.wait(1.0)

    async def block(self) -> None:
        """Block the loop until that was told. It ticks in between: it may have been late before."""
        while not self.has_begun.is_set():
            self.blocks()
            await asyncio.sleep(0.05)

    async def both(self) -> tuple[LoopBlocked, LoopBlocked]:
        """What was said while it lasted, and after it."""
        await eventually(lambda: len(self) == 2)
        during, after = self.of(LoopBlocked)
        assert isinstance(during, LoopBlocked)
        assert isinstance(after, LoopBlocked)
        assert (during.is_over, after.is_over) == (False, True)
        return during, after


LINE = f"test_blocked.py:{Told.blocks.__code__.co_firstlineno + 1}"


def watching_threads() -> int:
    return sum(thread.name == "blocked loop" for thread in threading.enumerate())


async def test_a_handler_that_blocks_the_loop_is_named_with_its_line() -> None:
    async def call(_: Message) -> None:
        await told.block()

    told = Told()
    watch = BlockedLoop(told, after=0.1)
    watch.start()
    called = OneCalled(Handler(subscription("app:charge"), call), Reports())
    called.submit(message(0))
    during, after = await told.both()
    assert (during.handler, during.place) == (after.handler, after.place) == ("app:charge", LINE)
    assert 0.1 <= during.seconds < after.seconds
    seconds = f"{during.seconds:.0f} s"
    assert f"app:charge has blocked the event loop for {seconds} at {LINE}: nothing else runs" in line_of(during).text
    assert re.search(rf"; it stands in call test_blocked.py:\d+, block .*, blocks {LINE}, wait ", line_of(during).text)
    assert f"app:charge blocked the event loop for {after.seconds:.1f} s at {LINE}" in line_of(after).text
    await called.callers.stop()
    watch.stop()
    await eventually(lambda: watching_threads() == 0)


async def test_other_code_that_blocks_the_loop_is_named_by_its_line_alone() -> None:
    told = Told()
    watch = BlockedLoop(told, after=0.1)
    watch.start()
    await told.block()
    during, after = await told.both()
    assert (during.handler, during.place) == (after.handler, after.place) == ("", LINE)
    watch.stop()
    await eventually(lambda: watching_threads() == 0)


async def test_the_end_is_told_after_the_beginning_however_slow_the_log_is() -> None:
    told, is_free = Told(), threading.Event()

    def slow(event: Event) -> None:
        if isinstance(event, LoopBlocked) and event.place == LINE and not event.is_over:
            told.has_begun.set()
            is_free.wait(HANGS)
        told(event)

    watch = BlockedLoop(slow, after=0.1)
    watch.start()
    await told.block()
    await asyncio.sleep(0.05)  # the loop ticks before the beginning is told
    is_free.set()
    during, after = await told.both()
    assert 0.1 <= during.seconds <= after.seconds
    watch.stop()
    await eventually(lambda: watching_threads() == 0)


@pytest.mark.parametrize("was_frozen", [True, False])
async def test_a_process_that_was_frozen_is_not_taken_for_a_blocked_loop(
    was_frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, now, jump, looks = Events(), time.monotonic(), [0.0], threading.Semaphore(0)

    def monotonic() -> float:
        looks.release()
        return now + jump[0]

    clocks = SimpleNamespace(monotonic=monotonic, process_time=lambda: 0.0 if was_frozen else jump[0])
    monkeypatch.setattr(slow_calls, "time", clocks)
    watch = BlockedLoop(events, after=0.4)
    watch.start()
    assert all(looks.acquire(timeout=HANGS) for _ in range(4))  # two of the start; the thread has begun, and looks
    while looks.acquire(blocking=False):
        pass
    jump[0] = 60.0
    assert all(looks.acquire(timeout=HANGS) for _ in range(3))  # on the loop: only the thread looks at the clock
    assert len(events) == (0 if was_frozen else 1)
    await eventually(lambda: looks.acquire(blocking=False) and (was_frozen or len(events) == 2))
    watch.stop()
    await eventually(lambda: watching_threads() == 0)
    assert len(events.of(LoopBlocked)) == (0 if was_frozen else 2)


async def test_the_thread_that_watches_ends_with_the_watch() -> None:
    watch = BlockedLoop(Events(), after=0.01)
    watch.start()
    assert watching_threads() == 1
    watch.stop()
    await eventually(lambda: watching_threads() == 0)


@in_virtual_time
async def test_a_loop_in_virtual_time_is_not_watched() -> None:
    watch = BlockedLoop(Events())
    watch.start()
    assert watching_threads() == 0
    watch.stop()


def test_the_program_that_runs_a_loop_is_not_to_blame_for_it() -> None:
    frames = []

    async def in_selector() -> None:
        # What the loop's own frame looks like from outside: the frame below this coroutine's.
        import sys

        frame = sys._getframe()
        while frame is not None and frame.f_code.co_name != "_run_once":
            frame = frame.f_back
        frames.append(place_of_frame(frame, ""))

    asyncio.run(in_selector())
    assert frames == [""]
