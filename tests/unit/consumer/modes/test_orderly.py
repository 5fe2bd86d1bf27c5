"""Orderly topics: one after the other, under a lock, retried in place."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.model.event import LoopFailed, QueueBlocked, Released, Retried
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outcome import DeadLetter, Outcomes, Retry, Skip
from rocketapp.model.snapshot import HandlerStats
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, Lock, consumed
from tests.unit.scripted import eventually, in_virtual_time

LOCK, UNLOCK = RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ


class Order:
    """A handler that takes a while and checks that nothing of a queue overlaps."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.active: dict[MessageQueue, int] = {}
        self.done: list[tuple[MessageQueue, int]] = []
        self.outcomes: dict[int, list[Any]] = {}
        self.calls: list[tuple[int, int, float]] = []

    async def __call__(self, message: Message) -> Any:
        queue = message.queue
        assert queue is not None
        self.active[queue] = self.active.get(queue, 0) + 1
        assert self.active[queue] == 1
        self.calls.append((message.offset, message.attempt, asyncio.get_running_loop().time()))
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.active[queue] -= 1
        if outcomes := self.outcomes.get(message.offset):
            outcome = outcomes.pop(0)
            if isinstance(outcome, BaseException):
                raise outcome
        self.done.append((queue, message.offset))
        return None

    def offsets(self, queue: MessageQueue) -> list[int]:
        return [offset for at, offset in self.done if at == queue]


async def with_queues(count: int, messages: int = 20) -> tuple[FakeCluster, list[MessageQueue]]:
    cluster = FakeCluster()
    await cluster.start()
    queues = cluster.create("topic", queues=count)
    for queue in queues:
        cluster.send_many(queue, messages)
    return cluster, queues


@in_virtual_time
async def test_each_queue_goes_one_by_one_and_queues_side_by_side() -> None:
    cluster, queues = await with_queues(3)
    order = Order(seconds=0.1)
    member = await cluster.member(consumed(order, orderly=True)).start()
    await eventually(lambda: len(order.done) == 60, 2.5)
    for queue in queues:
        assert order.offsets(queue) == list(range(20))
    assert await member.stop()
    assert [cluster.committed(queue) for queue in queues] == [20, 20, 20]
    await cluster.stop()


@in_virtual_time
async def test_the_lock_comes_before_the_offset_and_the_offset_before_the_pull() -> None:
    cluster, _ = await with_queues(1)
    order = Order()
    member = await cluster.member(consumed(order, orderly=True)).start()
    await eventually(lambda: len(order.done) == 20, 1.0)
    codes = [asked.code for asked in cluster.asked if asked.code == LOCK or asked.fields.get("topic") == "topic"]
    lock, pull = codes.index(LOCK), codes.index(RequestCode.PULL_MESSAGE)
    assert RequestCode.QUERY_CONSUMER_OFFSET in codes[lock:pull]
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_nothing_is_pulled_without_the_lock_and_the_reason_is_told() -> None:
    cluster, (queue,) = await with_queues(1)
    cluster.locks["group", queue] = Lock("another client", 42.0)
    order = Order()
    member = await cluster.member(consumed(order, orderly=True)).start()
    await asyncio.sleep(30)
    assert not cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")
    assert member.consumer.snapshot().blocked[queue] == "no lock: another member holds its lock"
    await eventually(lambda: len(order.done) == 20, 13.0)
    assert 42 <= order.calls[0][2] < 43
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_queues_that_wait_for_their_locks_take_no_turns_of_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, queues = await with_queues(64, messages=0)
    for queue in queues:
        cluster.locks["group", queue] = Lock("another client", 1000.0)
    member = await cluster.member(consumed(Order(), orderly=True)).start()
    await asyncio.sleep(5)
    timers, call_at = 0, cluster.loop.call_at

    def counted(*arguments: Any, **others: Any) -> Any:
        nonlocal timers
        timers += 1
        return call_at(*arguments, **others)

    monkeypatch.setattr(cluster.loop, "call_at", counted)
    await asyncio.sleep(60)
    assert timers < 2000
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_snapshot_says_how_the_lock_of_a_queue_stands() -> None:
    cluster, (queue,) = await with_queues(1)
    cluster.locks["group", queue] = Lock("another client", 10.0)
    member = await cluster.member(consumed(Order(), orderly=True), consumed(Order(), topic="free")).start()

    def leases() -> list[str]:
        return [one.lease for one in member.consumer.snapshot().queues if one.queue.topic != "%RETRY%group"]

    await asyncio.sleep(5)
    assert leases() == ["wanted"]
    await asyncio.sleep(10)
    assert leases() == ["held"] and member.consumer.snapshot().blocked == {}
    cluster.ignore(UNLOCK)
    stopping = asyncio.ensure_future(member.stop())
    await asyncio.sleep(1)
    assert leases() == ["none"]
    await stopping
    await cluster.stop()


@in_virtual_time
async def test_a_failed_message_is_retried_in_place_and_nothing_overtakes_it() -> None:
    cluster, (queue,) = await with_queues(1, messages=6)
    order = Order()
    order.outcomes = {2: [ValueError(), Retry(after=0.25)], 4: [Retry(after=7.0), Skip()]}
    member = await cluster.member(consumed(order, orderly=True)).start()
    await eventually(lambda: member.consumer.counters.handled == 6, 20)
    assert [offset for offset, _, _ in order.calls] == [0, 1, 2, 2, 2, 3, 4, 4, 5]
    tries = [(attempt, time) for offset, attempt, time in order.calls if offset == 2]
    assert [attempt for attempt, _ in tries] == [1, 2, 3]
    assert tries[1][1] - tries[0][1] == pytest.approx(1.0, abs=0.01)
    assert tries[2][1] - tries[1][1] == pytest.approx(0.25, abs=0.01)
    fourth = [time for offset, _, time in order.calls if offset == 4]
    assert fourth[1] - fourth[0] == pytest.approx(7.0, abs=0.01)
    assert member.consumer.counters == HandlerStats(handled=6, retried=3)
    assert [event.delay for event in member.events.of(Retried)] == [1.0, 0.25, 7.0]  # type: ignore[attr-defined]
    assert await member.stop()
    assert cluster.committed(queue) == 6
    await cluster.stop()


@in_virtual_time
async def test_after_the_last_retry_a_message_is_dead_and_the_next_one_follows() -> None:
    cluster, (queue,) = await with_queues(1, messages=3)
    order = Order()
    order.outcomes = {0: [ValueError("no")] * 99, 1: [DeadLetter("at once")]}
    member = await cluster.member(consumed(order, orderly=True, retries=3)).start()
    await eventually(lambda: order.offsets(queue) == [2], 20)
    assert [offset for offset, _, _ in order.calls] == [0, 0, 0, 0, 1, 2]
    assert cluster.bodies("%DLQ%group") == [b"0", b"1"]
    assert member.consumer.counters == HandlerStats(handled=1, retried=3, dead_lettered=2)
    assert await member.stop()
    assert cluster.committed(queue) == 3
    await cluster.stop()


@in_virtual_time
async def test_unlimited_retries_never_give_up() -> None:
    cluster, _ = await with_queues(1, messages=2)
    order = Order()
    order.outcomes = {0: [ValueError()] * 100}
    member = await cluster.member(consumed(order, orderly=True, retries=-1)).start()
    await eventually(lambda: len(order.done) == 2, 110)
    assert cluster.bodies("%DLQ%group") == []
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_no_message_passes_a_dead_one_that_no_broker_takes() -> None:
    cluster, (queue,) = await with_queues(1, messages=2)
    order = Order()
    order.outcomes = {0: [DeadLetter("x")]}
    cluster.refuse(RequestCode.SEND_MESSAGE_V2)
    cluster.refuse(RequestCode.CONSUMER_SEND_MSG_BACK)
    member = await cluster.member(consumed(order, orderly=True)).start()
    await asyncio.sleep(60)
    assert [offset for offset, _, _ in order.calls] == [0]
    assert cluster.committed(queue) == 0
    cluster.behave()
    await eventually(lambda: order.offsets(queue) == [1], 15)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_locks_are_renewed_and_given_back() -> None:
    cluster, (queue,) = await with_queues(1)
    order = Order()
    member = await cluster.member(consumed(order, orderly=True)).start()
    await asyncio.sleep(200)
    assert 10 <= len(cluster.requests(LOCK)) <= 11
    assert await member.stop()
    assert ("group", queue) not in cluster.locks
    codes = [asked.code for asked in cluster.asked]
    last_commit = len(codes) - 1 - codes[::-1].index(RequestCode.UPDATE_CONSUMER_OFFSET)
    assert last_commit < codes.index(UNLOCK) < codes.index(RequestCode.UNREGISTER_CLIENT)
    await cluster.stop()


@in_virtual_time
async def test_when_renewals_fail_handlers_stop_long_before_the_broker_gives_the_lock_away() -> None:
    cluster, (queue,) = await with_queues(1, messages=1000)
    order = Order(seconds=1.0)
    member = await cluster.member(consumed(order, orderly=True)).start()
    await asyncio.sleep(5)
    cluster.ignore(LOCK)
    await asyncio.sleep(100)
    # The lock was granted at 0 s and lives for 60 s. Its first renewal, at 20 s, is not answered: the silent
    # connection is given up, and the lock is uncertain.
    assert 19.0 < order.calls[-1][2] < 30.0
    assert "lock" in member.consumer.snapshot().blocked[queue]
    # Another member went on meanwhile; when the lock is ours again, we begin where it ended.
    cluster.offsets["group", queue] = 500
    cluster.behave()
    await eventually(lambda: order.calls[-1][0] >= 500, 5.0)
    assert min(offset for offset, _, time in order.calls if time > 100) == 500
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_lock_that_the_broker_gave_away_ends_the_session_and_commits_nothing() -> None:
    cluster, (queue,) = await with_queues(1, messages=100)
    order = Order(seconds=1.0)
    member = await cluster.member(consumed(order, orderly=True)).start()
    await asyncio.sleep(10.5)
    cluster.locks["group", queue] = Lock("another client", 1000.0)
    cluster.offsets["group", queue] = 50
    await asyncio.sleep(15)
    # Told at the renewal, at 20 s: what ran then was finished, nothing started after.
    assert order.calls[-1][2] <= 20.5
    committed_late = [offset for time, at, offset in cluster.commits if at == queue and time > 20.1]
    assert committed_late == []
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_clean_stop_hands_over_within_two_seconds_and_repeats_nothing() -> None:
    cluster, (queue,) = await with_queues(1, messages=100)
    order = Order(seconds=0.3)
    first = await cluster.member(consumed(order, orderly=True)).start()
    await asyncio.sleep(5)
    second = await cluster.member(consumed(order, orderly=True)).start()
    await asyncio.sleep(5)
    stopped_at = cluster.loop.time()
    assert await first.stop()
    count = len(order.done)
    await eventually(lambda: len(order.done) > count, 2.0)
    assert cluster.loop.time() - stopped_at < 2.0
    await eventually(lambda: len(order.done) == 100, 60)
    assert order.offsets(queue) == list(range(100))
    assert await second.stop()
    await cluster.stop()


@in_virtual_time
async def test_stopping_interrupts_the_wait_for_a_retry() -> None:
    cluster, (queue,) = await with_queues(1, messages=5)
    order = Order()
    order.outcomes = {3: [Retry(after=3000)]}
    member = await cluster.member(consumed(order, orderly=True)).start()
    await asyncio.sleep(1)
    began = cluster.loop.time()
    assert await member.stop()
    assert cluster.loop.time() - began < 1.0
    assert cluster.committed(queue) == 3
    assert ("group", queue) not in cluster.locks
    await cluster.stop()


@in_virtual_time
async def test_a_cut_drain_cancels_the_handler_and_commits_what_was_done() -> None:
    cluster, (queue,) = await with_queues(1, messages=5)
    order = Order()

    async def handler(message: Message) -> None:
        if message.offset == 2:
            await asyncio.sleep(10_000)
        await order(message)

    member = await cluster.member(consumed(handler, orderly=True)).start()
    await asyncio.sleep(1)
    assert not await member.stop(drain_timeout=3)
    assert cluster.committed(queue) == 2
    assert member.consumer.counters == HandlerStats(handled=2)
    assert ("group", queue) not in cluster.locks
    await cluster.stop()


@in_virtual_time
async def test_a_handler_that_goes_on_after_its_cancellation_holds_up_no_exit_and_keeps_its_lock() -> None:
    cluster, (queue,) = await with_queues(1, messages=5)
    release = asyncio.Event()

    async def handler(message: Message) -> None:
        while message.offset == 2 and not release.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await release.wait()

    member = await cluster.member(consumed(handler, orderly=True)).start()
    await asyncio.sleep(1)
    began = cluster.loop.time()
    assert not await member.stop(drain_timeout=3)
    assert cluster.loop.time() - began < 5
    assert cluster.committed(queue) == 2
    # It still runs, so no other member may start: the lock expires by itself.
    assert ("group", queue) in cluster.locks
    told = [event for event in member.events.of(LoopFailed) if "left behind" in event.error]  # type: ignore[attr-defined]
    assert [event.loop for event in told] == ["handler handler"]  # type: ignore[attr-defined]
    release.set()
    await asyncio.sleep(1)
    assert cluster.committed(queue) == 2
    await cluster.stop()


@in_virtual_time
async def test_few_queues_at_once_when_the_concurrency_is_small() -> None:
    cluster, _ = await with_queues(6, messages=3)
    order = Order(seconds=1.0)
    most = [0]

    async def handler(message: Message) -> None:
        most[0] = max(most[0], sum(order.active.values()) + 1)
        await order(message)

    member = await cluster.member(consumed(handler, orderly=True, concurrency=2)).start()
    await eventually(lambda: len(order.done) == 18, 15)
    assert most[0] == 2
    assert await member.stop()
    await cluster.stop()


class Busy(Order):
    """Fails at once in queue 0, is quick in queue 1, and takes long in queue 2."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0

    async def __call__(self, message: Message) -> Any:
        assert message.queue is not None
        self.most = max(self.most, sum(self.active.values()) + 1)
        if message.queue.queue_id == 0:
            raise Retry(after=1)
        self.seconds = 1000.0 if message.queue.queue_id == 2 else 0.0
        return await super().__call__(message)


async def busy(cluster: FakeCluster) -> tuple[Busy, Any, list[MessageQueue]]:
    """Queue 0 pauses before a retry, and meanwhile queue 2 has taken the only slot."""
    queues = cluster.create("topic", queues=3)
    order = Busy()
    member = await cluster.member(consumed(order, orderly=True, concurrency=1)).start()
    cluster.send(queues[0], b"x")
    await asyncio.sleep(0.5)
    cluster.send(queues[2], b"x")
    await eventually(lambda: order.active.get(queues[2]) == 1)
    return order, member, queues


@in_virtual_time
async def test_a_queue_that_pauses_before_a_retry_is_released_at_once_even_when_others_are_busy() -> None:
    cluster, _ = await with_queues(0)
    _, member, queues = await busy(cluster)
    member.owned[queues[0]].end()
    await eventually(lambda: len(member.events.of(Released)) == 1, 0.1)
    assert not await member.stop(drain_timeout=1)
    await cluster.stop()


@in_virtual_time
async def test_a_queue_that_waits_for_a_free_call_says_so_and_is_given_back_at_once() -> None:
    cluster, queues = await with_queues(2)
    member = await cluster.member(consumed(Order(seconds=1e6), orderly=True, concurrency=1)).start()
    await asyncio.sleep(30)
    (waiting,) = [queue for queue in queues if "free call" in member.consumer.snapshot().blocked.get(queue, "")]
    reason = "waits for a free call of handler handler (concurrency 1)"
    assert member.consumer.snapshot().blocked[waiting] == reason
    assert [(event.queue, event.reason) for event in member.events.of(QueueBlocked)] == [(waiting, reason)]
    member.owned[waiting].end()
    await eventually(lambda: len(member.events.of(Released)) == 1, 0.1)
    assert waiting not in member.consumer.snapshot().blocked
    assert not await member.stop(drain_timeout=1)
    await cluster.stop()


@in_virtual_time
async def test_a_queue_that_is_cut_while_it_waits_for_its_turn_gives_no_slot_back_that_it_has_not() -> None:
    cluster, _ = await with_queues(0)
    order, member, queues = await busy(cluster)
    await asyncio.sleep(2)
    member.owned[queues[0]].end()
    await asyncio.sleep(0.1)
    member.owned[queues[0]].cut()
    cluster.send(queues[1], b"x")
    await asyncio.sleep(5)
    assert order.most == 1
    assert not await member.stop(drain_timeout=1)
    await cluster.stop()


@in_virtual_time
async def test_orderly_batches_are_retried_in_place() -> None:
    cluster, (queue,) = await with_queues(1, messages=10)
    batches: list[list[int]] = []

    async def handler(messages: list[Message]) -> Any:
        batches.append([message.offset for message in messages])
        if len(batches) == 1:
            raise ValueError
        if len(batches) == 2:
            return Outcomes({messages[1]: Retry()})
        return None

    member = await cluster.member(consumed(handler, orderly=True, batch=4, batch_wait=0.1)).start()
    await eventually(lambda: member.consumer.counters.handled == 10, 10)
    assert batches == [[0, 1, 2, 3], [0, 1, 2, 3], [1], [4, 5, 6, 7], [8, 9]]
    assert await member.stop()
    assert cluster.committed(queue) == 10
    await cluster.stop()


@in_virtual_time
async def test_flow_control_holds_for_orderly_queues_but_not_their_span() -> None:
    cluster, (queue,) = await with_queues(1, messages=500)
    order = Order(seconds=0.01)
    config = ConsumerConfig(queue_max_messages=64, queue_max_span=10)
    member = await cluster.member(consumed(order, orderly=True), config=config).start()
    await asyncio.sleep(0.5)
    (unfinished,) = [each.unfinished for each in member.consumer.snapshot().queues if each.queue == queue]
    assert 0 < unfinished <= 128
    await eventually(lambda: len(order.done) == 500, 20)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_handler_that_blocks_the_loop_until_its_lock_is_lost_ends_in_the_dead_letters() -> None:
    cluster, (queue,) = await with_queues(1, messages=4)
    attempts: list[tuple[int, int]] = []

    async def handler(message: Message) -> None:
        attempts.append((message.offset, message.attempt))
        if message.offset == 1:
            cluster.loop.stand_still(70)  # type: ignore[attr-defined]
            # The lock has expired at its broker, and another member got it for a moment.
            cluster.locks["group", queue] = Lock("another client", cluster.loop.time() + 1)

    member = await cluster.member(consumed(handler, orderly=True, retries=2)).start()
    await eventually(lambda: cluster.committed(queue) == 4, 400)
    # What was finished but not committed comes again; only the message that blocked has failed.
    assert [attempt for offset, attempt in attempts if offset == 1] == [1, 2, 3]
    assert {attempt for offset, attempt in attempts if offset != 1} == {1}
    assert member.consumer.counters == HandlerStats(handled=len(attempts) - 3, dead_lettered=1)
    assert cluster.bodies("%DLQ%group") == [b"1"]
    assert await member.stop()
    await cluster.stop()


class Unreadable(Retry):
    """Its `after` cannot even be read."""

    @property  # type: ignore[misc]
    def after(self) -> float:
        raise KeyError("hours")

    def __init__(self) -> None:
        """Without super().__init__, which would set `after`."""


@pytest.mark.parametrize("orderly", [True, False])
@in_virtual_time
async def test_an_outcome_that_cannot_be_judged_is_a_failed_attempt(orderly: bool) -> None:
    cluster, (queue,) = await with_queues(1, messages=3)
    attempts: list[int] = []

    async def handle(message: Message) -> None:
        if message.body == b"0":
            attempts.append(message.attempt)
            raise Unreadable

    member = await cluster.member(consumed(handle, orderly=orderly, retries=2)).start()
    await eventually(lambda: len(cluster.bodies("%DLQ%group")) == 1, 200)
    assert attempts == [1, 2, 3]
    assert await member.stop()
    assert cluster.committed(queue) == 3
    await cluster.stop()


@in_virtual_time
async def test_a_queue_whose_delivery_failed_begins_anew_after_a_pause_and_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster, _ = await with_queues(1)
    calls: list[float] = []

    async def handle(_: Message) -> object:
        calls.append(cluster.loop.time())
        return DeadLetter("spoilt")

    member = cluster.member(consumed(handle, orderly=True))

    def fails(*_: object) -> asyncio.Future[None]:
        raise LookupError("a bug")

    monkeypatch.setattr(Redelivery, "store_dead_letter", fails)
    await member.start()
    await asyncio.sleep(10)
    assert 9 <= len(calls) <= 11
    assert {event.reason for event in member.events.of(Released)} == {"its delivery failed"}
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_the_next_owner_of_a_queue_goes_on_counting_attempts(is_killed: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        cluster, (queue,) = await with_queues(1, messages=3)
        first, second = Order(), Order()
        first.outcomes, second.outcomes = {1: [ValueError("no")] * 99}, {1: [ValueError("no")] * 99}
        one = await cluster.member(consumed(first, orderly=True, retries=4)).start()
        await eventually(lambda: (1, 3) in [call[:2] for call in first.calls], 10)
        await asyncio.sleep(0.1)
        if is_killed:
            await one.kill()
            cluster.behave()
        else:
            await one.stop()
        other = await cluster.member(consumed(second, orderly=True, retries=4)).start()
        await eventually(lambda: cluster.committed(queue) == 3, 90)
        assert [call[:2] for call in second.calls] == [(1, 4), (1, 5), (2, 1)]
        assert cluster.bodies("%DLQ%group") == [b"1"]
        await other.stop()

        # An operator moves the group back: the message has all of its attempts again.
        cluster.offsets["group", queue] = 1
        second.calls, second.outcomes[1] = [], [ValueError("no")]
        third = await cluster.member(consumed(second, orderly=True, retries=4)).start()
        await eventually(lambda: cluster.committed(queue) == 3, 10)
        assert [call[:2] for call in second.calls] == [(1, 1), (1, 2), (2, 1)]
        await third.stop()
        await cluster.stop()

    run()


@in_virtual_time
async def test_a_broker_that_keeps_no_attempts_holds_nothing_up() -> None:
    cluster, (queue,) = await with_queues(1, messages=3)

    def refuse(asked: Any) -> Any:
        return Command(1, remark="no such queue") if int(asked.fields["queueId"]) else True

    cluster.misbehave = {RequestCode.QUERY_CONSUMER_OFFSET: refuse, RequestCode.UPDATE_CONSUMER_OFFSET: refuse}
    order = Order()
    order.outcomes = {1: [ValueError("no")]}
    member = await cluster.member(consumed(order, orderly=True)).start()
    await eventually(lambda: cluster.committed(queue) == 3, 10)
    assert [call[:2] for call in order.calls] == [(0, 1), (1, 1), (1, 2), (2, 1)]
    assert await member.stop()
    await cluster.stop()
