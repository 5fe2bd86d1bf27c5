"""A queue says that its messages wait for a free call of their handler, or for its rate."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rocketapp.consumer.modes.sink import QueueSession, Sink
from rocketapp.model.event import Handled, LoopFailed, Moving, QueueBlocked
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.scripted import in_virtual_time


@in_virtual_time
async def test_a_queue_without_order_says_that_all_calls_are_busy_with_messages_of_another_one() -> None:
    cluster, end = FakeCluster(), asyncio.Event()
    await cluster.start()
    queues = cluster.create("topic", queues=2)
    seen: list[Message] = []

    async def call(message: Message) -> None:
        seen.append(message)
        await end.wait()

    member = await cluster.member(consumed(call, concurrency=1)).start()
    for queue in queues:
        cluster.send(queue, b"x")
    await asyncio.sleep(5)
    (waiting,) = [queue for queue in queues if queue != seen[0].queue]
    assert waiting not in member.consumer.snapshot().blocked
    await asyncio.sleep(10)
    reason = "waits for a free call of handler handler (concurrency 1)"
    assert member.consumer.snapshot().blocked[waiting] == reason
    assert [(event.queue, event.reason) for event in member.events.of(QueueBlocked)] == [(waiting, reason)]
    end.set()
    await asyncio.sleep(5)
    assert member.consumer.snapshot().blocked == {}
    assert [event.queue for event in member.events.of(Moving)] == [waiting]
    assert await member.stop()
    await cluster.stop()


class Waiting:
    """Stores nothing for now (rocketapp.plugin.QueueWriter)."""

    def __init__(self, session: QueueSession) -> None: ...

    def take(self, messages: Sequence[Any]) -> None: ...

    async def drain(self) -> None: ...

    def discard(self) -> None: ...


@pytest.mark.parametrize("records", [False, True])
@in_virtual_time
async def test_a_sink_whose_writer_waits_does_not_wait_for_the_calls_of_its_group(records: bool) -> None:
    cluster, end = FakeCluster(), asyncio.Event()
    await cluster.start()
    (sunk,), (handled,) = cluster.create("topic"), cluster.create("other")

    async def call(message: Message) -> None:
        await end.wait()

    sink = replace(consumed(call), sink=Sink(new_writer=Waiting, records=records))
    member = await cluster.member(sink, consumed(call, topic="other", concurrency=1)).start()
    cluster.send(sunk, b"x")
    cluster.send_many(handled, 2)
    await asyncio.sleep(30)
    assert sunk not in member.consumer.snapshot().blocked
    end.set()
    await asyncio.sleep(5)
    assert sum(event.count for event in member.events if isinstance(event, Handled)) == 2
    assert member.events.of(LoopFailed) == []
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_says_that_the_rate_of_its_handler_lets_nothing_start() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)

    async def call(message: Message) -> None: ...

    member = await cluster.member(consumed(call, rate=0.02)).start()
    for _ in range(2):
        cluster.send(queue, b"x")
    await asyncio.sleep(15)
    assert member.consumer.snapshot().blocked == {queue: "waits for the rate of handler handler (0.02/s)"}
    await asyncio.sleep(50)
    assert member.consumer.snapshot().blocked == {}
    assert await member.stop()
    await cluster.stop()
