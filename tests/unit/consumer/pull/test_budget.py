"""The budget of bytes that all queues of an app share, as its groups and topics see it."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.modes.by_message import MessageMode
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed
from tests.unit.scripted import eventually, in_virtual_time


def held_by(member: Member) -> int:
    """Bytes in all process queues of a member."""
    return sum(each.unfinished_bytes for each in member.consumer.snapshot().queues)


async def hang(message: Message) -> None:
    await asyncio.Event().wait()


@in_virtual_time
async def test_a_topic_whose_handlers_hang_does_not_stop_another_topic() -> None:
    cluster, seen = FakeCluster(), list[bytes]()

    async def handle(message: Message) -> None:
        seen.append(message.body)

    await cluster.start()
    for queue in cluster.create("hung", queues=16):
        for _ in range(40):
            cluster.send(queue, bytes(10_000))
    (alive,) = cluster.create("alive")
    topics = consumed(hang, topic="hung"), consumed(handle, topic="alive")
    config = ConsumerConfig(pull_batch_bytes=50_000)
    member = await cluster.member(*topics, cache_bytes=2_000_000, config=config).start()
    await asyncio.sleep(30)
    assert held_by(member) <= 1_000_000 + 60_000
    # The others' messages come one by one and in a backlog, of any size.
    for number in range(100):
        cluster.send(alive, bytes(number * 1000))
    await eventually(lambda: len(seen) == 100, seconds=5)
    for number in range(20):
        cluster.send(alive, b"one")
        await eventually(lambda count=101 + number: len(seen) == count, seconds=1)  # type: ignore[misc]
    await member.stop(drain_timeout=0.1)
    await cluster.stop()


@in_virtual_time
async def test_a_hanging_message_larger_than_the_budget_stops_no_other_topic() -> None:
    cluster, seen = FakeCluster(), list[int]()

    async def handle(message: Message) -> None:
        seen.append(message.offset)
        if message.attempt == 1:
            raise ValueError

    await cluster.start()
    (hung,), (alive,) = cluster.create("hung"), cluster.create("alive")
    cluster.send(hung, bytes(300_000))
    cluster.send_many(hung, 1)
    topics = consumed(hang, topic="hung"), consumed(handle, topic="alive")
    member = await cluster.member(*topics, cache_bytes=200_000).start()
    await asyncio.sleep(1)
    cluster.send_many(alive, 50)
    await eventually(lambda: len(seen) == 100, seconds=15)
    # What is held is said as it is now, and so is the call that holds it.
    await asyncio.sleep(15)
    reason = member.consumer.snapshot().blocked[hung]
    assert "all queues together hold 300" in reason
    assert "; handler " in reason
    assert " has been running for " in reason
    await member.stop(drain_timeout=0.1)
    await cluster.stop()


@in_virtual_time
async def test_first_pulls_of_many_queues_bring_no_more_than_the_budget_and_one_answer() -> None:
    cluster, limit, most = FakeCluster(), 8 << 20, 0
    await cluster.start()
    for queue in cluster.create("topic", queues=100):
        for _ in range(3):
            cluster.send(queue, bytes(1 << 20))
    member = await cluster.member(consumed(hang), cache_bytes=limit).start()
    for _ in range(1000):
        await asyncio.sleep(0.005)
        most = max(most, held_by(member))
    assert 3 << 20 <= most <= limit // 2 + (1 << 20) + 1000
    pulls = len(cluster.requests(RequestCode.PULL_MESSAGE, topic="topic"))
    await asyncio.sleep(30)
    # What found no room is not asked for again and again.
    assert len(cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")) == pulls
    await member.stop(drain_timeout=0.1)
    await cluster.stop()


@in_virtual_time
async def test_first_pulls_are_as_few_as_large_messages_need() -> None:
    cluster, limit = FakeCluster(), 128 << 20
    await cluster.start()
    for queue in cluster.create("topic", queues=300):
        cluster.send(queue, bytes(1 << 20))
    member = await cluster.member(consumed(hang), cache_bytes=limit).start()
    await eventually(lambda: held_by(member) >= limit // 2 - (1 << 20), seconds=5)
    assert len(cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")) <= 64 + 64
    await member.stop(drain_timeout=0.1)
    await cluster.stop()


@in_virtual_time
async def test_pulls_that_brokers_hold_bring_no_more_than_the_budget_when_all_are_answered_at_once() -> None:
    cluster, limit, most = FakeCluster(), 8 << 20, 0
    await cluster.start()
    queues = cluster.create("topic", queues=100)
    member = await cluster.member(consumed(hang), cache_bytes=limit).start()
    await eventually(lambda: all(cluster.held[queue] for queue in queues), seconds=14)
    for queue in queues:
        cluster.send(queue, bytes(1 << 20))
    for _ in range(1000):
        await asyncio.sleep(0.005)
        most = max(most, held_by(member))
    assert 3 << 20 <= most <= limit // 2 + (1 << 20) + 1000
    await member.stop(drain_timeout=0.1)
    await cluster.stop()


@in_virtual_time
async def test_what_was_discarded_for_lack_of_room_is_handled_later_and_once() -> None:
    cluster, seen = FakeCluster(), list[bytes]()

    async def handle(message: Message) -> None:
        await asyncio.sleep(0.01)
        seen.append(message.body)

    await cluster.start()
    for number, queue in enumerate(cluster.create("topic", queues=40)):
        for count in range(5):
            cluster.send(queue, b"%d " % (5 * number + count) + bytes(50_000))
    member = await cluster.member(consumed(handle, concurrency=4), cache_bytes=400_000).start()
    await eventually(lambda: len(seen) >= 200, seconds=60)
    assert sorted(int(body.split()[0]) for body in seen) == list(range(200))
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_that_waits_for_room_keeps_no_answer_in_memory() -> None:
    cluster, limit = FakeCluster(), 16 << 20
    await cluster.start()
    for queue in cluster.create("topic", queues=60):
        for _ in range(2):
            cluster.send(queue, bytes(1 << 20))
    tracemalloc.start()
    try:
        member = await cluster.member(consumed(hang), cache_bytes=limit).start()
        await asyncio.sleep(30)
        gc.collect()
        in_memory = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert in_memory <= held_by(member) + (4 << 20)
    await member.stop(drain_timeout=0.1)
    await cluster.stop()


@in_virtual_time
async def test_a_session_that_cannot_begin_leaves_nothing_in_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    await cluster.start()
    cluster.create("topic")
    member = cluster.member(consumed(hang))

    def fails(*_: object) -> Any:
        raise LookupError("a bug")

    monkeypatch.setattr(MessageMode, "open", fails)
    await member.start()
    await asyncio.sleep(10)
    assert "a bug" in str(member.events)
    # The limits of a topic are divided among the queues in it.
    assert " 0 queues" in repr(member.flow_control)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_queues_without_messages_do_not_keep_the_others_of_their_topic_waiting() -> None:
    cluster, handled = FakeCluster(), asyncio.Event()
    await cluster.start()
    queues = cluster.create("topic", queues=500)
    cluster.send(queues[-1], b"1")

    async def handle(_: Message) -> None:
        handled.set()

    member = await cluster.member(consumed(handle)).start()
    async with asyncio.timeout(1.0):
        await handled.wait()
    assert await member.stop()
    await cluster.stop()
