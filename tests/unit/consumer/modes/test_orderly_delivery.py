"""An orderly delivery and its lock: suspended, usable again, lost; and attempts that outlive a session."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from itertools import groupby
from typing import Any, cast

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.by_message import MessageDelivery, MessageMode
from rocketapp.consumer.workers.in_threads import MakeThreads, Threads
from rocketapp.consumer.workers.run import MESSAGES_PER_ROUND
from rocketapp.model.outcome import DeadLetter
from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message
from tests.simulation.threads import SimulatedThreads, block
from tests.unit.consumer.fake_cluster import consumed_by, subscription
from tests.unit.consumer.modes.contexts import DeadLetters, ScriptedLock, mode_context, opened, under
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import HANGS, eventually, in_virtual_time
from tests.virtual import run_virtual

RETRIES = 2


class Bench:
    """Sessions of one orderly queue with one handler."""

    def __init__(self, call: Callable[[Any], Any], *, threads: MakeThreads = Threads, **options: Any) -> None:
        self.handler = Handler(subscription(orderly=True, retries=RETRIES, **options), call)
        self.dead_letters = DeadLetters()
        self.prompted: list[int] = []
        context = mode_context(
            [self.handler],
            dead_letters=self.dead_letters,
            prompt=lambda process_queue: self.prompted.append(process_queue.commit_offset),
            threads=threads,
        )
        self.way = MessageMode([consumed_by(self.handler)], context, in_order=True)
        self.process_queue: ProcessQueue[Message]
        self.lock: ScriptedLock
        self.delivery: MessageDelivery

    def begin(self, first: int, end: int) -> None:
        """A new session, which pulls these messages."""
        self.lock, self.process_queue = ScriptedLock(), ProcessQueue(QUEUE, first)
        self.delivery = self.way.open(under(self.lock, self.process_queue))
        messages = [message(offset) for offset in range(first, end)]
        self.process_queue.put(messages)
        self.delivery.deliver(messages)

    async def lose(self) -> None:
        """A session whose lock is lost while the call for its message runs."""
        self.begin(0, 1)
        await asyncio.sleep(20)
        self.lock.run_out()
        self.lock.decide(False)
        await self.delivery.over
        await self.delivery.drained()


@in_virtual_time
async def test_a_suspended_queue_starts_nothing_and_goes_on_when_its_lock_is_usable_again() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(0.2)

    bench = Bench(call)
    bench.begin(0, 4)
    await asyncio.sleep(0.3)
    bench.lock.run_out()
    await asyncio.sleep(30)
    assert called == [0, 1]
    # The call that ran counts when it is certain that the queue was ours.
    assert bench.process_queue.commit_offset == 1
    bench.lock.decide(True)
    await eventually(lambda: bench.process_queue.commit_offset == 4)
    assert called == [0, 1, 2, 3]
    assert bench.handler.stats == HandlerStats(handled=4)
    assert not bench.delivery.over.done()
    await bench.way.callers.stop()


@in_virtual_time
async def test_a_call_during_which_the_lock_was_lost_is_not_done_and_its_attempt_counts() -> None:
    attempts: list[int] = []

    async def call(message: Message) -> None:
        attempts.append(message.attempt)
        await asyncio.sleep(40)

    bench = Bench(call)
    for session in range(RETRIES + 1):
        await bench.lose()
        assert bench.delivery.over.done()
        assert attempts == list(range(1, session + 2))
        assert bench.handler.stats.handled == 0
    bench.begin(0, 2)
    await eventually(lambda: bench.process_queue.commit_offset == 2, 60)
    ((offset, reason),) = bench.dead_letters.letters
    assert (offset, reason) == (0, "LockLost: the lock of its queue was lost during the last of 3 attempts")
    assert attempts == [1, 2, 3, 1]
    assert bench.handler.stats == HandlerStats(handled=1, dead_lettered=1)
    await bench.way.callers.stop()


@in_virtual_time
async def test_a_queue_that_is_given_back_while_a_dead_letter_is_stored_keeps_the_count_of_its_attempts() -> None:
    attempts: list[int] = []

    async def call(message: Message) -> None:
        attempts.append(message.attempt)
        await asyncio.sleep(40)

    bench = Bench(call)
    for _ in range(RETRIES + 1):
        await bench.lose()
    bench.dead_letters.are_stored = False
    bench.begin(0, 1)
    await asyncio.sleep(1)
    bench.delivery.end()
    await bench.delivery.drained()
    bench.dead_letters.are_stored = True
    bench.begin(0, 1)
    await eventually(lambda: bench.process_queue.commit_offset == 1, 60)
    assert attempts == [1, 2, 3]
    await bench.way.callers.stop()


@in_virtual_time
async def test_attempts_are_forgotten_once_another_member_has_finished_the_message() -> None:
    attempts: list[tuple[int, int]] = []

    async def call(message: Message) -> None:
        attempts.append((message.offset, message.attempt))
        if message.offset == 0:
            raise ValueError

    bench = Bench(call)
    bench.begin(0, 2)
    await asyncio.sleep(0.5)
    bench.lock.run_out()
    bench.lock.decide(False)
    await asyncio.sleep(5)
    assert bench.delivery.over.done()
    bench.begin(1, 3)
    await eventually(lambda: bench.process_queue.commit_offset == 3)
    bench.delivery.end()
    await bench.delivery.drained()
    bench.begin(0, 1)
    await eventually(lambda: len(attempts) == 4)
    assert attempts == [(0, 1), (1, 1), (2, 1), (0, 1)]
    await bench.way.callers.stop()


@in_virtual_time
async def test_a_queue_that_is_released_while_it_is_suspended_waits_for_no_lock() -> None:
    async def call(_: Message) -> None:
        await asyncio.sleep(1)

    bench = Bench(call)
    bench.begin(0, 4)
    await asyncio.sleep(1.5)
    bench.lock.run_out()
    await asyncio.sleep(5)
    bench.delivery.end()
    async with asyncio.timeout(1):
        await bench.delivery.drained()
    assert bench.process_queue.commit_offset == 1
    await bench.way.callers.stop()


@in_virtual_time
async def test_a_paused_queue_ends_its_running_call_and_starts_the_next_when_it_goes_on() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(1)

    bench = Bench(call)
    bench.begin(0, 4)
    await asyncio.sleep(1.5)
    bench.way.context.member.pauses.pause("topic", "test")
    await asyncio.sleep(30)
    assert called == [0, 1]
    assert bench.process_queue.commit_offset == 2
    bench.way.context.member.pauses.resume("topic")
    await eventually(lambda: bench.process_queue.commit_offset == 4)
    bench.way.context.member.pauses.pause("topic", "test")
    bench.delivery.end()
    async with asyncio.timeout(1):
        await bench.delivery.drained()
    await bench.way.callers.stop()


@in_virtual_time
async def test_offsets_are_prompted_after_32_messages_at_most() -> None:
    async def call(_: Message) -> None: ...

    bench = Bench(call)
    bench.begin(0, 1000)
    await eventually(lambda: bench.process_queue.commit_offset == 1000)
    steps = [after - before for before, after in zip([0, *bench.prompted], bench.prompted, strict=False)]
    assert sum(steps) == 1000
    assert max(steps) <= 32
    await bench.way.callers.stop()


async def test_a_sync_handler_during_which_the_lock_was_lost_counts_its_attempt() -> None:
    attempts: list[int] = []
    loop = asyncio.get_running_loop()

    def call(message: Message) -> None:
        attempts.append(message.attempt)
        if len(attempts) == 1:
            bench.lock.run_out()
            loop.call_soon_threadsafe(bench.lock.decide, False)

    bench = Bench(call, is_async=False)
    bench.begin(0, 1)
    await bench.delivery.over
    await bench.delivery.drained()
    assert bench.handler.stats == HandlerStats()
    bench.begin(0, 1)
    await eventually(lambda: not len(bench.process_queue))
    assert attempts == [1, 2]
    await bench.way.callers.stop()


@in_virtual_time
async def test_a_delivery_that_fails_is_over_with_its_error() -> None:
    async def call(_: Message) -> object:
        return DeadLetter("spoilt")

    bench = Bench(call)
    bench.dead_letters.letters = cast(Any, None)  # what takes dead letters fails
    bench.begin(0, 1)
    await asyncio.sleep(1)
    assert isinstance(bench.delivery.over.exception(), AttributeError)
    await bench.way.callers.stop()


class CountedThreads(Threads):
    """Threads that count the jobs they are given."""

    jobs = 0

    def run(self, job: Callable[[], None]) -> None:
        CountedThreads.jobs += 1
        super().run(job)


async def test_a_thread_goes_on_with_a_long_run_whose_offsets_are_prompted_meanwhile() -> None:
    blocked, release = threading.Event(), threading.Event()

    def call(message: Message) -> None:
        if message.offset == 130:
            blocked.set()
            release.wait(HANGS)

    CountedThreads.jobs = 0
    bench = Bench(call, threads=CountedThreads, is_async=False)
    bench.begin(0, 256)
    await eventually(lambda: blocked.is_set() and bool(bench.prompted) and bench.prompted[-1] >= 128)
    assert bench.process_queue.commit_offset < 132
    release.set()
    await eventually(lambda: not len(bench.process_queue))
    assert CountedThreads.jobs < 256 // 32  # a run that takes long ends early
    assert bench.handler.stats == HandlerStats(handled=256)
    await bench.way.callers.stop()


@pytest.mark.parametrize(
    ("is_async", "takes", "count"),
    [(False, 0.1, 10), (True, 0.1, 10), (False, 0.002, MESSAGES_PER_ROUND)],
    ids=["sync", "async", "sync, not as slow"],
)
def test_a_slow_handler_lets_other_queues_have_their_turn_after_a_second_or_so_many_messages(
    is_async: bool, takes: float, count: int
) -> None:
    called: list[int] = []

    def call(message: Message) -> None:
        called.append(message.offset)
        block(takes)

    async def on_loop(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(takes)

    async def main() -> None:
        made: list[SimulatedThreads] = []

        def make() -> SimulatedThreads:
            made.append(SimulatedThreads())
            return made[-1]

        bench = Bench(on_loop if is_async else call, threads=make, is_async=is_async, concurrency=1)
        bench.begin(0, 256)
        bench.begin(1000, 1256)
        await asyncio.sleep(100)
        turns = [len(list(turn)) for _, turn in groupby(offset // 1000 for offset in called)]
        assert max(turns) <= count + 1 and min(turns[:-2]) >= count
        assert sorted(called) == [*range(256), *range(1000, 1256)]
        await bench.way.callers.stop()
        for threads in made:
            threads.end()

    run_virtual(main)


def test_a_thread_starts_nothing_of_a_queue_whose_lease_ended_while_it_waited_for_a_call() -> None:
    called: list[int] = []

    def call(message: Message) -> None:
        called.append(message.offset)
        block(1.0)

    async def main() -> None:
        threads = SimulatedThreads()
        bench = Bench(call, threads=lambda: threads, is_async=False, concurrency=1)
        bench.begin(0, 1)
        await asyncio.sleep(0.5)
        bench.begin(1000, 1002)
        bench.lock.run_out()
        await asyncio.sleep(10)
        assert called == [0]
        bench.lock.decide(True)
        await asyncio.sleep(10)
        assert called == [0, 1000, 1001]
        await bench.way.callers.stop()
        threads.end()

    run_virtual(main)


def test_a_thread_starts_nothing_more_of_a_queue_that_is_handed_over() -> None:
    called: list[int] = []

    def call(message: Message) -> None:
        called.append(message.offset)
        block(0.1)

    async def main() -> None:
        threads = SimulatedThreads()
        bench = Bench(call, threads=lambda: threads, is_async=False)
        bench.begin(0, 32)
        await asyncio.sleep(0.25)
        bench.delivery.end(start_no_more=True)
        await bench.delivery.drained()
        assert (called, bench.process_queue.commit_offset) == ([0, 1, 2], 3)
        await bench.way.callers.stop()
        threads.end()

    run_virtual(main)


def test_a_run_of_many_heads_is_given_back_once_by_each_thread_of_a_slow_handler() -> None:
    def call(_: Message) -> None:
        block(1.5)

    async def main() -> None:
        threads = SimulatedThreads()
        handler = Handler(subscription(order_by=lambda message: message.offset, is_async=False, concurrency=2), call)
        context = mode_context([handler], dead_letters=DeadLetters(), threads=lambda: threads)
        mode = MessageMode([consumed_by(handler)], context, in_order=True)
        queue, delivery = opened(mode, QUEUE, *(message(offset) for offset in range(8)))
        await asyncio.sleep(60)
        assert queue.commit_offset == 8
        assert list(delivery.runs()) == []
        await mode.callers.stop()
        threads.end()

    run_virtual(main)


@in_virtual_time
async def test_a_delivery_that_is_abandoned_cancels_its_own_calls_alone() -> None:
    called: list[int] = []

    async def call(message: Message) -> None:
        called.append(message.offset)
        await asyncio.sleep(5)

    bench = Bench(call, concurrency=2)
    bench.begin(0, 1)
    abandoned = bench.delivery
    bench.begin(100, 101)
    await asyncio.sleep(1)
    assert await abandoned.abandon()
    await asyncio.sleep(10)
    assert (called, bench.process_queue.commit_offset) == ([0, 100], 101)
    await bench.way.callers.stop()


async def test_nothing_that_a_thread_finishes_after_its_delivery_was_abandoned_is_acknowledged() -> None:
    blocked, release, ended = threading.Event(), threading.Event(), threading.Event()

    def call(message: Message) -> None:
        if message.offset == 31:
            blocked.set()
            release.wait(HANGS)
            ended.set()

    bench = Bench(call, is_async=False)
    bench.begin(0, 100)
    await eventually(blocked.is_set)
    assert not await bench.delivery.abandon()
    release.set()
    await eventually(ended.is_set)
    await asyncio.sleep(0)
    assert bench.process_queue.commit_offset == 31
    assert bench.handler.stats == HandlerStats(handled=31)
    await bench.way.callers.stop()


def messages_alive() -> list[Message]:
    """Whoever holds those that other tests have left keeps them alive."""
    gc.collect()
    # `isinstance` would ask lazy objects of other packages for their class.
    return [each for each in gc.get_objects() if type(each) is Message]


@in_virtual_time
async def test_finished_messages_are_not_kept_during_a_run_nor_while_the_queue_waits() -> None:
    alive: list[int] = []

    async def call(_: Message) -> None:
        alive.append(len(messages_alive()))

    before = messages_alive()
    bench = Bench(call)
    bench.begin(0, 8)
    await eventually(lambda: len(alive) == 8)
    assert alive[7] == len(before) + 1
    await asyncio.sleep(1)
    assert len(messages_alive()) == len(before)
    await bench.way.callers.stop()
