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
from tests.unit.scripted import Events, in_virtual_time


def blocks() -> None:
    threading.Event().wait(0.4)


LINE = f"test_blocked.py:{blocks.__code__.co_firstlineno + 1}"


def watching_threads() -> int:
    return sum(thread.name == "blocked loop" for thread in threading.enumerate())


async def no_watch() -> None:
    async with asyncio.timeout(5):
        while watching_threads():  # noqa: ASYNC110 - a thread sets no event of the loop
            await asyncio.sleep(0.005)


async def told(events: Events) -> tuple[LoopBlocked, LoopBlocked]:
    """What was said while it lasted, and after it."""
    async with asyncio.timeout(5):
        while len(events) < 2:  # noqa: ASYNC110 - the watch sets no event of the loop
            await asyncio.sleep(0.01)
    during, after = events
    assert isinstance(during, LoopBlocked)
    assert isinstance(after, LoopBlocked)
    assert (during.is_over, after.is_over) == (False, True)
    return during, after


async def test_a_handler_that_blocks_the_loop_is_named_with_its_line() -> None:
    async def call(_: Message) -> None:
        blocks()

    events = Events()
    watch = BlockedLoop(events, after=0.1)
    watch.start()
    called = OneCalled(Handler(subscription("app:charge"), call), Reports())
    called.submit(message(0))
    during, after = await told(events)
    assert (during.handler, during.place) == (after.handler, after.place) == ("app:charge", LINE)
    assert 0.1 <= during.seconds < after.seconds < 5
    assert f"app:charge has blocked the event loop for 0 s at {LINE}: nothing else runs" in line_of(during).text
    assert re.search(rf"; it stands in call test_blocked.py:\d+, blocks {LINE}, wait threading", line_of(during).text)
    assert f"app:charge blocked the event loop for {after.seconds:.1f} s at {LINE}" in line_of(after).text
    await called.callers.stop()
    watch.stop()
    await no_watch()


async def test_other_code_that_blocks_the_loop_is_named_by_its_line_alone() -> None:
    events = Events()
    watch = BlockedLoop(events, after=0.1)
    watch.start()
    asyncio.get_running_loop().call_soon(blocks)
    during, after = await told(events)
    assert (during.handler, during.place) == (after.handler, after.place) == ("", LINE)
    watch.stop()
    await no_watch()


async def test_the_end_is_told_after_the_beginning_however_slow_the_log_is() -> None:
    events, is_free = Events(), threading.Event()

    def slow(event: Event) -> None:
        if isinstance(event, LoopBlocked) and not event.is_over:
            is_free.wait(5)
        events(event)

    watch = BlockedLoop(slow, after=0.1)
    watch.start()
    loop = asyncio.get_running_loop()
    loop.call_later(0.45, is_free.set)  # the loop has ticked before: its ticks have been due for longer
    loop.call_soon(blocks)
    during, after = await told(events)
    assert 0.1 <= during.seconds <= after.seconds < 5
    watch.stop()
    await no_watch()


@pytest.mark.parametrize("was_frozen", [True, False])
async def test_a_process_that_was_frozen_is_not_taken_for_a_blocked_loop(
    was_frozen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    events, jump, monotonic = Events(), [0.0], time.monotonic
    clocks = SimpleNamespace(
        monotonic=lambda: monotonic() + jump[0], process_time=lambda: 0.0 if was_frozen else jump[0]
    )
    monkeypatch.setattr(slow_calls, "time", clocks)

    def jumps() -> None:
        jump[0] = 60.0
        threading.Event().wait(0.2)

    watch = BlockedLoop(events, after=0.4)
    watch.start()
    done = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.call_soon(jumps)
    loop.call_later(0.3, done.set)
    await done.wait()
    watch.stop()
    await no_watch()
    assert len(events.of(LoopBlocked)) == (0 if was_frozen else 2)


async def test_the_thread_that_watches_ends_with_the_watch() -> None:
    watch = BlockedLoop(Events(), after=0.01)
    watch.start()
    assert watching_threads() == 1
    watch.stop()
    await no_watch()


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
