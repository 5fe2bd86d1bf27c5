"""Handlers with a rate: messages a second, in every way of consuming."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from rocketapp.model.outcome import Retry
from rocketapp.model.policy import Policy
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.scripted import eventually, in_virtual_time

WAYS: list[dict[str, Any]] = [{}, {"orderly": True}, {"order_by": "k"}]


async def with_messages(count: int, queues: int = 2) -> FakeCluster:
    cluster = FakeCluster()
    await cluster.start()
    for queue in cluster.create("topic", queues=queues):
        for number in range(count // queues):
            cluster.send(queue, str(number).encode(), k=f"k{number % 5}")
    return cluster


@pytest.mark.parametrize("options", WAYS)
@in_virtual_time
async def test_no_more_start_than_the_rate_says_and_none_less(options: dict[str, Any]) -> None:
    started = list[float]()

    async def handle(_: Message) -> None:
        started.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.01)

    cluster = await with_messages(200)
    member = await cluster.member(consumed(handle, rate=10, **options)).start()
    await eventually(lambda: member.consumer.counters.handled == 200, 25)
    for at in range(len(started) - 20):
        assert started[at + 20] - started[at] >= 1.85
    assert 19 <= started[-1] - started[0] <= 22
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("options", WAYS)
async def test_threads_keep_the_rate(options: dict[str, Any]) -> None:
    cluster = await with_messages(60)
    started = list[float]()

    def handle(_: Message) -> None:
        started.append(loop.time())

    loop = asyncio.get_running_loop()
    member = await cluster.member(consumed(handle, is_async=False, concurrency=4, rate=100, **options)).start()
    await eventually(lambda: member.consumer.counters.handled == 60, 20)
    assert started[-1] - started[0] >= 0.45
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_pulls_stop_by_flow_control_and_a_stop_waits_for_nothing() -> None:
    calls = list[int]()

    async def handle(message: Message) -> None:
        calls.append(message.offset)

    cluster = await with_messages(4000, queues=1)
    member = await cluster.member(consumed(handle, rate=1)).start()
    await asyncio.sleep(60)
    pulls = len(cluster.requests(RequestCode.PULL_MESSAGE, topic="topic"))
    await asyncio.sleep(30)
    assert len(cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")) <= pulls + 2
    assert 89 <= len(calls) <= 92
    begun = cluster.loop.time()
    assert await member.stop()
    assert cluster.loop.time() - begun < 0.5
    (queue,) = [queue for queue in cluster.log if queue.topic == "topic"]
    assert cluster.committed(queue) == len(calls)
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True])
@in_virtual_time
async def test_each_message_of_a_batch_counts(orderly: bool) -> None:
    batches = list[tuple[float, int]]()

    async def handle(messages: list[Message]) -> None:
        batches.append((asyncio.get_running_loop().time(), len(messages)))

    cluster = await with_messages(100, queues=1)
    member = await cluster.member(consumed(handle, rate=10, batch=20, orderly=orderly)).start()
    await eventually(lambda: sum(count for _, count in batches) == 100, 20)
    assert 7.5 <= batches[-1][0] - batches[0][0] <= 10
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("options", WAYS)
@in_virtual_time
async def test_retries_count_and_a_pause_holds_what_waits(options: dict[str, Any]) -> None:
    calls = list[float]()

    async def handle(message: Message) -> None:
        calls.append(asyncio.get_running_loop().time())
        if message.attempt == 1:
            raise Retry

    cluster = await with_messages(20, queues=1)
    member = await cluster.member(consumed(handle, rate=2, retry=Policy([1]), **options)).start()
    await asyncio.sleep(3.3)
    member.consumer.pause("topic", "maintenance")
    before = len(calls)
    assert 5 <= before <= 8
    await asyncio.sleep(50)
    assert len(calls) <= before + 1
    member.consumer.resume("topic")
    await eventually(lambda: member.consumer.counters.handled == 20, 60)
    assert calls[-1] - calls[0] >= 50 + (40 - 8) / 2 - 1
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("options", WAYS)
@in_virtual_time
async def test_queues_share_the_rate_when_all_have_a_backlog(options: dict[str, Any]) -> None:
    cluster = FakeCluster()
    await cluster.start()
    for queue in cluster.create("topic", queues=4):
        for number in range(400):
            cluster.send(queue, b"x", k=f"k{number}")
    started = Counter[int]()

    async def handle(message: Message) -> None:
        started[message.queue_id] += 1
        await asyncio.sleep(0.001)

    member = await cluster.member(consumed(handle, rate=20, **options)).start()
    await asyncio.sleep(20)
    assert sum(started.values()) > 380
    assert min(started[number] for number in range(4)) > 60
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("options", WAYS)
@in_virtual_time
async def test_nothing_is_left_behind_when_the_handler_becomes_slower_than_its_rate(options: dict[str, Any]) -> None:
    calls = list[float]()

    async def handle(_: Message) -> None:
        calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.001 if len(calls) < 20 else 0.3)

    cluster = await with_messages(160, queues=4)
    member = await cluster.member(consumed(handle, rate=10, concurrency=1, **options)).start()
    await eventually(lambda: member.consumer.counters.handled == 160, 60)
    assert await member.stop()
    await cluster.stop()
