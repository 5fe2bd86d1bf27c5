"""Limits of topics, of pulls and of time: each does what it says."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest

from rocketapp.app.settings import checked, fields_of
from rocketapp.config.broker import BrokerConfig
from rocketapp.config.client import ClientConfig
from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.workers.callers import Callers
from rocketapp.consumer.workers.in_threads import Threads
from rocketapp.model.event import HandlerSlow, QueueBlocked
from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed, subscription
from tests.unit.consumer.members import member_alone
from tests.unit.consumer.reports import OneCalled, message
from tests.unit.scripted import eventually, in_virtual_time


def options(**values: object) -> ConsumerConfig:
    return ConsumerConfig(subscription_check="off", **values)  # type: ignore[arg-type]


async def stuck(cluster: FakeCluster, gate: asyncio.Event, config: ConsumerConfig, *, queues: int) -> Member:
    """A member whose handler waits for the gate, and a topic with 300 messages in each queue."""
    await cluster.start()
    for queue in cluster.create("topic", queues=queues):
        cluster.send_many(queue, 300)

    async def wait(message: Message) -> None:
        await gate.wait()

    return await cluster.member(consumed(wait), config=config).start()


def unfinished(member: Member) -> dict[int, int]:
    queues = member.consumer.snapshot().queues
    return {each.queue.queue_id: each.unfinished for each in queues if each.queue.topic == "topic"}


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"topic_max_messages": 200}, "messages, limit topic_max_messages 200 for {n} queues"),
        ({"topic_max_bytes": 20_000}, "bytes, limit topic_max_bytes 20000 for {n} queues"),
    ],
)
def test_what_a_topic_may_hold_is_divided_among_its_queues_here(limits: dict[str, int], told: str) -> None:
    @in_virtual_time
    async def story() -> None:
        held = {}
        for queues in (2, 4):
            cluster, gate = FakeCluster(), asyncio.Event()
            member = await stuck(cluster, gate, options(pull_batch_size=10, **limits), queues=queues)
            await asyncio.sleep(10)
            held[queues] = unfinished(member)
            reasons = member.consumer.snapshot().blocked
            assert told.format(n=queues) in reasons[MessageQueue("topic", "broker-a", 0)]
            gate.set()
            await eventually(lambda: member.consumer.counters.handled == 300 * queues)  # noqa: B023
            await member.stop()
            await cluster.stop()
        # A message has about 100 bytes; the answer at hand and the pull under way come on top of a share.
        for queues, counts in held.items():
            assert all(200 // queues <= count < 200 // queues + 30 for count in counts.values()), held

    story()


@in_virtual_time
async def test_a_queue_is_pulled_an_interval_after_each_answer_with_messages() -> None:
    cluster, gate = FakeCluster(), asyncio.Event()
    gate.set()
    member = await stuck(cluster, gate, options(pull_interval=2.0), queues=1)
    await eventually(lambda: member.consumer.counters.handled == 300, 60)
    pulls = [asked.time for asked in cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")][:10]
    assert [after - before for before, after in pairwise(pulls)] == pytest.approx([2.0] * 9, abs=0.1)
    # What arrives while the broker holds a pull is there at once.
    await asyncio.sleep(5)
    cluster.send_many(MessageQueue("topic", "broker-a", 0), 1)
    await eventually(lambda: member.consumer.counters.handled == 301, 0.1)
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("send_back", [False, True])
def test_slow_calls_are_told_twice_and_perhaps_sent_back_16_at_a_time(send_back: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, gate = FakeCluster(), asyncio.Event()
        await cluster.start()
        (queue,) = cluster.create("topic")
        for number in range(30):
            cluster.send(queue, str(number).encode(), UNIQ_KEY=f"id-{number}")
        calls: list[tuple[bytes, int]] = []

        async def handler(message: Message) -> None:
            calls.append((message.body, message.attempt))
            if message.attempt == 1 and int(message.body) < 18:
                await gate.wait()
                raise ValueError("too late")

        config = options(handler_warning=60.0, send_back_slow=send_back)
        member = await cluster.member(consumed(handler), config=config).start()
        await asyncio.sleep(59)
        assert member.events.of(HandlerSlow) == []  # type: ignore[attr-defined]
        await eventually(lambda: len(member.events.of(HandlerSlow)) == 18, 12)  # type: ignore[attr-defined]
        await asyncio.sleep(0.5)  # before the next look
        slow = member.events.of(HandlerSlow)  # type: ignore[attr-defined]
        assert "handler handler has been running for 6" in slow[0].text
        sent = cluster.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
        assert len(sent) == (16 if send_back else 0)
        assert {asked.fields["delayLevel"] for asked in sent} <= {"3"}
        await asyncio.sleep(120)
        assert len(member.events.of(HandlerSlow)) == 36  # type: ignore[attr-defined]
        (shown,) = member.consumer.snapshot().handlers
        assert shown.slow == 18
        # Nothing holds up the queue any more, and the copies were handled while the first calls ran.
        assert len(cluster.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == (18 if send_back else 0)
        assert cluster.committed(queue) == (30 if send_back else 0)
        assert len([attempt for _, attempt in calls if attempt > 1]) == (18 if send_back else 0)
        gate.set()
        await eventually(lambda: len(calls) == 30 + 18, 60)
        await asyncio.sleep(60)
        assert len(calls) == 30 + 18
        assert len(cluster.requests(RequestCode.CONSUMER_SEND_MSG_BACK)) == 18
        await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_more_calls_run_at_once_while_much_waits_and_fewer_again_afterwards() -> None:
    cluster, running, peaks = FakeCluster(), set[bytes](), dict[int, int]()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 1000)
    began = cluster.loop.time() - 1  # looks are at the ends of minutes

    async def slow(message: Message) -> None:
        running.add(message.body)
        minute = int((cluster.loop.time() - began) // 60)
        peaks[minute] = max(peaks.get(minute, 0), len(running))
        await asyncio.sleep(2)
        running.discard(message.body)

    config = options(concurrency_most=12, adjust_backlog=300)
    member = await cluster.member(consumed(slow, concurrency=4, concurrency_most=12), config=config).start()
    await eventually(lambda: member.consumer.counters.handled == 1000, 600)
    assert [peaks[minute] for minute in range(3)] == [4, 8, 12]
    await asyncio.sleep(200)
    minute = int((cluster.loop.time() - began) // 60)
    cluster.send_many(queue, 200)
    await eventually(lambda: member.consumer.counters.handled == 1200, 600)
    assert {peaks[later] for later in peaks if later >= minute} == {4}
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("ends", ["fails", "returns"])
def test_a_slow_call_that_ends_while_its_message_is_not_taken_back_makes_no_second_copy(ends: str) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, gate, attempts = FakeCluster(), asyncio.Event(), list[int]()
        await cluster.start()
        (queue,) = cluster.create("topic")
        cluster.send(queue, b"slow", UNIQ_KEY="id")

        async def handler(message: Message) -> None:
            attempts.append(message.attempt)
            if message.attempt == 1:
                await gate.wait()
                if ends == "fails":
                    raise ValueError("too late")

        for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
            cluster.misbehave[code] = lambda _: Command(ResponseCode.SYSTEM_BUSY)
        config = options(handler_warning=60.0, send_back_slow=True)
        member = await cluster.member(consumed(handler), config=config).start()
        await asyncio.sleep(80)
        gate.set()
        await asyncio.sleep(1)
        cluster.misbehave.clear()
        await asyncio.sleep(120)
        assert attempts == ([1, 2] if ends == "fails" else [1])
        await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_another_rate_in_order_leaves_its_calls_as_many_as_declared_while_messages_wait() -> None:
    cluster, running, most = FakeCluster(), 0, 0
    await cluster.start()
    for queue in cluster.create("topic", 8):
        cluster.send_many(queue, 1000)

    async def slow(message: Message) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(2)
        running -= 1

    config = options(concurrency_most=8, adjust_backlog=300)
    declared = consumed(slow, orderly=True, concurrency=2, concurrency_most=8, rate=1000.0)
    member = await cluster.member(declared, config=config).start()
    await asyncio.sleep(130)
    member.consumer.adjust({"topic": {"rate": 2000.0}})
    await asyncio.sleep(10)
    assert most == 2
    await member.stop(drain_timeout=0.1)
    await cluster.stop()


@pytest.mark.parametrize(
    ("options", "grown"), [({}, 16), ({"mode": "pop"}, 4), ({"orderly": True}, 4), ({"order_by": "k"}, 4)]
)
async def test_only_a_concurrent_handler_gets_more_calls(options: dict[str, Any], grown: int) -> None:
    handler = Handler(subscription(concurrency=4, concurrency_most=32, **options), lambda _: None)
    callers = Callers(member_alone([handler]), Threads)
    caller = callers.one(handler)
    callers.grow(4)
    assert caller.most == grown
    await callers.stop()


async def test_a_concurrency_that_was_adjusted_holds_however_much_waits() -> None:
    handler = Handler(subscription(concurrency=4, concurrency_most=32), lambda _: None)
    callers = Callers(member_alone([handler]), Threads)
    callers.grow(4)
    for concurrency, most in [(1, 1), (40, 40), (4, 4), (None, 16)]:
        callers.pace(handler, concurrency, None, None)
        assert callers.one(handler).most == most
    callers.pace(handler, 2, None, None)
    callers.grow(8)
    assert callers.one(handler).most == 2
    await callers.stop()


@pytest.mark.parametrize(("concurrency", "most"), [(2, 2), (3, 3), (None, 8)])
@in_virtual_time
async def test_a_handler_that_is_adjusted_to_what_it_declares_gets_no_more_calls_while_messages_wait(
    concurrency: int | None, most: int
) -> None:
    cluster, running, highest = FakeCluster(), 0, 0
    await cluster.start()
    for queue in cluster.create("topic", 8):
        cluster.send_many(queue, 1000)

    async def slow(message: Message) -> None:
        nonlocal running, highest
        running += 1
        highest = max(highest, running)
        await asyncio.sleep(2)
        running -= 1

    config = options(concurrency_most=8, adjust_backlog=300)
    member = await cluster.member(consumed(slow, concurrency=2, concurrency_most=8), config=config).start()
    await asyncio.sleep(130)
    assert highest == 8
    member.consumer.adjust({"topic": {"concurrency": concurrency}})
    await asyncio.sleep(10)
    highest = 0
    await asyncio.sleep(130)
    assert highest == most
    await member.stop(drain_timeout=0.1)
    await cluster.stop()


def test_a_handler_in_threads_gets_more_of_them() -> None:
    together = threading.Barrier(3, timeout=10)
    declared = subscription(is_async=False, concurrency=1, concurrency_most=3)

    class Done:
        def __init__(self) -> None:
            self.count, self.all = 0, asyncio.Event()

        def done(self, _: Message) -> None: ...

        def done_all(self, messages: Sequence[Message]) -> None:
            self.count += len(messages)
            if self.count == 3:
                self.all.set()

        def ended(self, item: object, result: object, raised: bool) -> None:
            raise AssertionError(result)

    async def story() -> None:
        done = Done()
        called = OneCalled(Handler(declared, lambda _: together.wait() * 0 or None), done)
        called.submit(*map(message, range(3)))
        called.callers.grow(3)
        await asyncio.wait_for(done.all.wait(), 10)
        assert done.count == 3
        await called.callers.stop()

    asyncio.run(story())


def test_heartbeats_come_before_brokers_forget_a_member() -> None:
    assert checked(fields_of(ClientConfig)["heartbeat_interval"], BrokerConfig().client_expiry)[1] is not None


@in_virtual_time
async def test_a_queue_without_messages_moves_however_long_brokers_may_hold_its_pulls() -> None:
    cluster = FakeCluster()
    await cluster.start()
    cluster.create("topic")
    member = await cluster.member(consumed(_nothing), config=ConsumerConfig(long_poll=60.0)).start()
    await asyncio.sleep(300)
    assert member.events.of(QueueBlocked) == []
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_commits_go_on_with_the_longest_time_between_rebalances() -> None:
    option = fields_of(ConsumerConfig)["rebalance_interval"]
    longest = max(number for number in range(1, 3600) if checked(option, number)[1] is None)
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    config = ConsumerConfig(rebalance_interval=float(longest))
    member = await cluster.member(consumed(_nothing), config=config).start()
    for number in range(30):
        cluster.send(queue, b"%d" % number)
        await asyncio.sleep(10)
        assert cluster.committed(queue) == number + 1
    assert await member.stop()
    await cluster.stop()


async def _nothing(_: Message) -> None: ...
