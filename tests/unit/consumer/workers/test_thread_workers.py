"""Sync handlers: threads that overlap when they wait, and do not get in each other's way when they do not."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.workers.caller import Caller
from rocketapp.consumer.workers.callers import Callers
from rocketapp.consumer.workers.in_threads import Threads
from rocketapp.consumer.workers.run import FreeRun, Run, Taker
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import DeadLetter, Skip
from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.lease import Lease
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed, subscription
from tests.unit.consumer.members import member_alone
from tests.unit.consumer.reports import OneCalled, Reports, Session, message
from tests.unit.scripted import HANGS, eventually


async def with_messages(count: int, queues: int = 1) -> tuple[FakeCluster, list[MessageQueue]]:
    cluster = FakeCluster()
    await cluster.start()
    found = cluster.create("topic", queues=queues)
    for queue in found:
        cluster.send_many(queue, count)
    return cluster, found


def handler_threads() -> int:
    return sum("handler" in thread.name for thread in threading.enumerate())


async def test_a_waiting_handler_has_all_of_its_threads_at_once() -> None:
    cluster, (queue,) = await with_messages(40)
    all_there = threading.Barrier(20)

    def handler(_: Message) -> None:
        all_there.wait(HANGS)

    member = await cluster.member(consumed(handler, is_async=False, concurrency=20)).start()
    await eventually(lambda: member.consumer.counters == HandlerStats(handled=40))
    assert await member.stop()
    assert cluster.committed(queue) == 40
    await eventually(lambda: handler_threads() == 0)
    await cluster.stop()


async def test_a_quick_handler_gets_every_message_once() -> None:
    cluster, queues = await with_messages(5000, queues=2)
    seen: Counter[MessageQueue | None] = Counter()

    def handler(message: Message) -> None:
        seen[message.queue] += 1

    member = await cluster.member(consumed(handler, is_async=False, concurrency=20)).start()
    await eventually(lambda: member.consumer.counters.handled == 10_000)
    assert seen == dict.fromkeys(queues, 5000)
    assert await member.stop()
    assert [cluster.committed(queue) for queue in queues] == [5000, 5000]
    await cluster.stop()


async def test_never_more_threads_than_the_concurrency() -> None:
    cluster, _ = await with_messages(100, queues=2)
    lock, active, most = threading.Lock(), [0], [0]
    pause = threading.Event()

    def handler(_: Message) -> None:
        with lock:
            active[0] += 1
            most[0] = max(most[0], active[0])
        pause.wait(0.005)
        with lock:
            active[0] -= 1

    member = await cluster.member(consumed(handler, is_async=False, concurrency=3)).start()
    await eventually(lambda: member.consumer.counters.handled == 200)
    assert most[0] == 3
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1), KeyboardInterrupt(), DeadLetter("x")])
async def test_whatever_a_thread_raises_is_a_failure_and_the_thread_survives(error: BaseException) -> None:
    cluster, (queue,) = await with_messages(3)
    threads: set[str] = set()

    def handler(message: Message) -> None:
        threads.add(threading.current_thread().name)
        if message.offset == 1:
            raise error

    member = await cluster.member(consumed(handler, is_async=False, concurrency=1)).start()
    await eventually(lambda: member.consumer.counters.handled == 2)
    await eventually(lambda: member.consumer.counters.retried + member.consumer.counters.dead_lettered == 1)
    assert len(threads) == 1
    assert await member.stop()
    assert cluster.committed(queue) == 3
    await cluster.stop()


async def test_sync_batches() -> None:
    cluster, (queue,) = await with_messages(10)
    batches: list[int] = []

    def handler(messages: list[Message]) -> None:
        batches.append(len(messages))

    member = await cluster.member(consumed(handler, is_async=False, concurrency=1, batch=4, batch_wait=0.05)).start()
    await eventually(lambda: member.consumer.counters.handled == 10)
    assert batches == [4, 4, 2]
    assert await member.stop()
    assert cluster.committed(queue) == 10
    await cluster.stop()


async def test_a_cut_drain_leaves_a_hanging_thread_behind_and_commits_nothing_of_it() -> None:
    cluster, (queue,) = await with_messages(10)
    hanging, release = threading.Event(), threading.Event()
    calls: list[int] = []

    def handler(message: Message) -> None:
        calls.append(message.offset)
        if message.offset == 4:
            hanging.set()
            release.wait(HANGS)

    member = await cluster.member(consumed(handler, is_async=False, concurrency=1)).start()
    await eventually(hanging.is_set)
    assert not await member.stop(drain_timeout=0.2)
    assert cluster.committed(queue) == 4
    release.set()
    await eventually(lambda: handler_threads() == 0)
    # What was not started is not started afterwards either.
    assert calls == [0, 1, 2, 3, 4]
    assert cluster.committed(queue) == 4
    await cluster.stop()


class InOrder:
    """A sync handler that checks the order of each queue."""

    def __init__(self) -> None:
        self.calls: dict[Any, list[int]] = {}
        self.lock = threading.Lock()
        self.fail_once: set[int] = set()

    def __call__(self, message: Message) -> None:
        with self.lock:
            self.calls.setdefault(message.queue, []).append(message.offset)
        if message.offset in self.fail_once:
            self.fail_once.discard(message.offset)
            raise ValueError("once")


async def test_orderly_sync_handlers_go_one_by_one_and_retry_in_place() -> None:
    cluster, queues = await with_messages(300, queues=4)
    handler = InOrder()
    handler.fail_once = {7}
    member = await cluster.member(consumed(handler, is_async=False, orderly=True, concurrency=20)).start()
    await eventually(lambda: member.consumer.counters.handled == 1200)
    failed = [calls for calls in handler.calls.values() if len(calls) == 301]
    assert [calls[:9] for calls in failed] == [[0, 1, 2, 3, 4, 5, 6, 7, 7]]
    assert all(calls == list(range(300)) for calls in handler.calls.values() if calls not in failed)
    assert member.consumer.counters == HandlerStats(handled=1200, retried=1)
    assert await member.stop()
    assert [cluster.committed(queue) for queue in queues] == [300] * 4
    await cluster.stop()


async def test_a_hanging_orderly_thread_keeps_its_lock_when_the_drain_is_cut() -> None:
    cluster, (queue,) = await with_messages(5)
    hanging, release = threading.Event(), threading.Event()

    def handler(message: Message) -> None:
        if message.offset == 2:
            hanging.set()
            release.wait(HANGS)

    member = await cluster.member(consumed(handler, is_async=False, orderly=True, concurrency=2)).start()
    await eventually(hanging.is_set)
    await eventually(lambda: member.consumer.counters.handled == 2)
    assert not await member.stop(drain_timeout=0.2)
    # No other member may start while this one still runs: the lock expires by itself.
    assert ("group", queue) in cluster.locks
    assert not cluster.requests(RequestCode.UNLOCK_BATCH_MQ)
    assert cluster.committed(queue) == 2
    release.set()
    await eventually(lambda: handler_threads() == 0)
    await cluster.stop()


async def test_slow_orderly_threads_report_while_their_burst_goes_on() -> None:
    cluster, (queue,) = await with_messages(30)
    release = threading.Event()

    def handler(message: Message) -> None:
        if message.offset == 20:
            release.wait(HANGS)
        elif message.offset % 5 == 0:
            threading.Event().wait(0.003)

    member = await cluster.member(consumed(handler, is_async=False, orderly=True, concurrency=2)).start()
    await eventually(lambda: member.consumer.counters.handled >= 15)
    release.set()
    await eventually(lambda: member.consumer.counters.handled == 30)
    assert await member.stop()
    assert cluster.committed(queue) == 30
    await cluster.stop()


async def test_a_system_that_has_no_thread_for_a_while_loses_and_repeats_no_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, (queue,) = await with_messages(10)
    start = threading.Thread.start
    refused: list[str] = []

    def refuse_twice(thread: threading.Thread) -> None:
        if "handler" in thread.name and len(refused) < 2:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_twice)
    member = await cluster.member(consumed(lambda _: None, is_async=False)).start()
    await eventually(lambda: member.consumer.counters.handled == 10)
    assert len(refused) == 2
    (told,) = [event for event in member.events.of(LoopFailed) if event.loop == "handlers"]  # type: ignore[attr-defined]
    assert told.error == "can't start new thread"  # type: ignore[attr-defined]
    assert await member.stop()
    assert cluster.committed(queue) == 10
    await cluster.stop()


async def test_what_a_thread_has_done_is_acknowledged_before_its_run_is_said_to_be_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On a busy machine the first call lasts: a thread that is so late tells the run of its call, and puts nothing down.
    monkeypatch.setattr("rocketapp.consumer.workers.in_threads.LONGEST_ROUND", HANGS)
    events: list[str] = []
    started, go_on = threading.Event(), threading.Event()

    class InOrder(Run):
        """A run that remembers what is said of it."""

        in_order = True

        def __init__(self, taker: Taker, offset: int) -> None:
            super().__init__([(taker, message(offset))], Session())
            self.name, self.lease = str(offset), Lease(lasts=1e9, renew_interval=1e9)
            self.lease.granted(0.0)

        def acknowledge(self, pairs: Sequence[tuple[Taker, Message]]) -> None:
            events.append(f"done {self.name}")
            if self.name == "1":
                go_on.set()
                threading.Event().wait(0.2)  # meanwhile the thread of the other one ends its call, and looks for more

        def returned(self) -> None:
            events.append(f"back {self.name}")

    def call(message: Message) -> None:
        if message.offset == 0:
            started.set()
            go_on.wait(HANGS)

    workers = OneCalled(Handler(subscription(is_async=False, concurrency=2), call), Reports())
    InOrder(workers.taker, 0).submit()
    await asyncio.to_thread(started.wait, HANGS)
    InOrder(workers.taker, 1).submit()
    await eventually(lambda: len(events) == 4)
    assert events.index("done 0") < events.index("back 0")
    assert events.index("done 1") < events.index("back 1")
    await workers.callers.stop()


async def test_what_a_thread_does_while_the_loop_acknowledges_is_acknowledged_too() -> None:
    go_on, has_ended, told = threading.Event(), threading.Event(), list[int]()

    class Ended(Threads):
        def run(self, job: Callable[[], None]) -> None:
            super().run(lambda: (job(), has_ended.set())[0])

    class Told(Run):
        def acknowledge(self, pairs: Sequence[tuple[Taker, Message]]) -> None:
            go_on.set()
            has_ended.wait(HANGS)  # the thread finishes the rest, and has nothing more to do
            told.extend(message.offset for _, message in pairs)

    def call(message: Message) -> None:
        if message.offset > 0:
            go_on.wait(HANGS)

    handler = Handler(subscription(is_async=False), call)
    callers = Callers(member_alone([handler]), Ended)
    Told([(Taker(callers.one(handler), Reports()), message(at)) for at in range(3)], Session()).submit()
    await eventually(lambda: len(told) == 3)
    assert told == [0, 1, 2]
    await callers.stop()


async def test_what_a_thread_has_done_of_two_runs_is_acknowledged_while_its_next_call_takes_its_time() -> None:
    end, acks = threading.Event(), Reports()

    def call(message: Message) -> None:
        if message.offset == 2:
            end.wait(HANGS)

    called = OneCalled(Handler(subscription(is_async=False, concurrency=1), call), acks)
    called.submit(message(0))
    called.submit(message(1), message(2))
    await eventually(lambda: len(acks.finished) == 2)
    assert acks.finished == [0, 1]
    end.set()
    await called.callers.stop()


async def test_what_a_thread_has_done_of_alternating_handlers_is_acknowledged_for_each_in_one_turn() -> None:
    acks, turns, is_through = [Reports(), Reports()], list[int](), threading.Event()

    def call(message: Message) -> None:
        if message.offset == 31:
            is_through.set()

    async def count() -> None:
        while len(acks[0].finished + acks[1].finished) < 32:
            turns.append(len(acks[0].finished + acks[1].finished))
            await asyncio.sleep(0)

    first = OneCalled(Handler(subscription("first", is_async=False), call), acks[0])
    second = Taker(first.callers.one(Handler(subscription("second", is_async=False), call)), acks[1])
    takers = first.taker, second
    FreeRun([(takers[at % 2], message(at)) for at in range(32)], Session(), is_of_one=False).submit()
    is_through.wait(HANGS)  # on the loop, which hears of all together
    await asyncio.wait_for(count(), HANGS)
    assert set(turns) <= {0, 31}  # the last message may be a little later
    assert [each.finished for each in acks] == [[*range(0, 32, 2)], [*range(1, 32, 2)]]
    await first.callers.stop()


class Told:
    """Workers that only remember who may be called again."""

    def __init__(self) -> None:
        self.callers: list[Caller] = []

    def submit(self, caller: Caller, run: Any) -> None: ...

    def enter(self, caller: Caller, *, by_worker: bool = False) -> None:
        self.callers.append(caller)


def two_callers(told: Told) -> tuple[Caller, Caller]:
    """The calls of the first one are all taken."""
    handlers = [Handler(subscription(name, is_async=False, concurrency=4), print) for name in "ab"]
    before, after = (Caller(each, member_alone(handlers), told) for each in handlers)
    while before.take():
        pass
    return before, after


@pytest.mark.parametrize("where", ["runs", "mixed"])
@pytest.mark.parametrize("is_there", [True, False])
async def test_a_run_that_comes_as_a_thread_goes_on_to_another_handler_finds_a_call_or_is_told_of_it(
    is_there: bool, where: str
) -> None:
    class Coming(deque[str]):
        """Another thread looks at a run as soon as it has come, which is just behind a look that found none."""

        def __bool__(self) -> bool:
            if len(self) > 0:
                return True
            self.append("run")
            found.append(before.take())
            return False

    told, found = Told(), list[bool]()
    before, after = two_callers(told)
    setattr(before, where, Coming(["run"] if is_there else []))
    assert after.take_after(before)
    assert told.callers == [before] if is_there else found == [True]


async def test_a_call_beyond_a_smaller_most_is_not_given_back_by_a_thread_that_goes_on_to_another_handler() -> None:
    before, after = two_callers(Told())
    before.resize(3)
    assert after.take_after(before)
    assert (before.free, before.is_open) == (0, True)
    assert after.take_after(before)
    assert before.free == 1


async def test_what_becomes_of_a_call_is_told_to_its_handler_also_where_a_thread_goes_on_to_another_one() -> None:
    acks = [Reports(), Reports()]
    first = OneCalled(Handler(subscription("first", is_async=False, concurrency=2), lambda _: None), acks[0])
    failing = Handler(subscription("second", is_async=False, concurrency=2), lambda _: Skip("not for us"))
    second = Taker(first.callers.one(failing), acks[1])
    FreeRun([(first.taker, message(0)), (second, message(1))], Session(), is_of_one=False).submit()
    await eventually(lambda: bool(acks[1].ended_calls) and not first.callers.in_flight())
    assert [each.finished for each in acks] == [[0], []]
    assert [offset for offset, _, _ in acks[1].ended_calls] == [1]
    await eventually(lambda: (first.taker.caller.free, second.caller.free) == (2, 2))
    await first.callers.stop()


async def test_full_pulls_that_come_fast_wake_a_thread_once_for_several_and_what_else_comes_at_once() -> None:
    has_ended, woken = threading.Event(), list[int]()

    class Counted(Threads):
        def run(self, job: Callable[[], None]) -> None:
            woken.append(len(acks.finished))
            super().run(lambda: (job(), has_ended.set())[0])

    def run_of(first: int, count: int) -> FreeRun:
        return FreeRun([(taker, message(first + at)) for at in range(count)], Session(), is_of_one=True)

    handler, acks = Handler(subscription(is_async=False), lambda _: None), Reports()
    callers = Callers(member_alone([handler]), Counted)
    taker = Taker(callers.one(handler), acks)
    run_of(0, 32).submit()
    for first in 32, 64, 96:
        has_ended.wait(HANGS)  # on the loop
        run_of(first, 32).submit()
    assert len(woken) == 1
    has_ended.clear()
    await eventually(lambda: len(acks.finished) == 128)
    assert len(woken) == 2
    for _ in range(2):
        has_ended.wait(HANGS)
        has_ended.clear()
        run_of(128, 1).submit()
    assert len(woken) == 4
    # What is in order comes in parts, each when the one before is done.
    has_ended.wait(HANGS)
    Run([(taker, message(130 + at)) for at in range(32)], Session()).submit()
    assert len(woken) == 5
    await eventually(lambda: len(acks.finished) == 162)
    await callers.stop()


@pytest.mark.parametrize(
    ("handlers", "count", "result", "wakes"),
    [
        (1, 32, None, 0),
        (2, 32, None, 0),
        (2, 257, None, 1),  # the run is given back before its last message
        (1, 32, Skip("not for us"), 1),
        (0, 32, None, 1),  # in order
    ],
)
async def test_quick_calls_wake_the_loop_only_when_something_waits_for_it(
    handlers: int, count: int, result: Skip | None, wakes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[object] = []
    woken: list[object] = []
    is_through = threading.Event()

    class Collected(Reports):
        def done(self, message: Message) -> None:
            done.append(message)

        def done_all(self, messages: Sequence[Message]) -> None:
            done.extend(messages)

        def ended(self, item: Any, result: object, raised: bool) -> None:
            done.append(item)

    def call(message: Message) -> Skip | None:
        if message.offset == min(count, 256) - 1:
            is_through.set()
        return result

    workers = OneCalled(Handler(subscription(is_async=False), call), Collected())
    second = Taker(workers.callers.one(Handler(subscription("second", is_async=False), call)), Collected())
    takers = [workers.taker, second][: max(handlers, 1)]
    pairs = [(takers[at % len(takers)], message(at)) for at in range(count)]
    # The look of the loop that follows a start would be the first to see them; it comes when the loop is free again.
    monkeypatch.setattr(asyncio.get_running_loop(), "call_soon_threadsafe", lambda *call: woken.append(call))
    (FreeRun(pairs, Session(), is_of_one=handlers == 1) if handlers else Run(pairs, Session())).submit()
    is_through.wait(HANGS)  # on the loop
    await eventually(lambda: len(done) == min(count, 256))
    assert len(woken) == wakes
    await workers.callers.stop()
