"""A queue says that it waits for a message that fails again and again, or that is parked."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp.model.event import Moving, QueueBlocked
from rocketapp.model.outcome import Park, Retry
from rocketapp.model.policy import Policy
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.scripted import in_virtual_time


@in_virtual_time
async def test_a_queue_in_order_says_which_message_it_tries_again_also_while_others_come() -> None:
    cluster, is_mended = FakeCluster(), asyncio.Event()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)

    async def call(message: Message) -> None:
        if not is_mended.is_set():
            raise ValueError("no stock")

    member = await cluster.member(consumed(call, orderly=True, retries=-1)).start()
    for _ in range(30):
        cluster.send(queue, b"x")
        await asyncio.sleep(1)
    reason = member.consumer.snapshot().blocked[queue]
    assert reason.startswith("#0 has failed: what is behind it waits for its attempt 3"), reason
    assert [event.queue for event in member.events.of(QueueBlocked)] == [queue]
    is_mended.set()
    await asyncio.sleep(5)
    assert member.consumer.snapshot().blocked == {}
    assert [event.queue for event in member.events.of(Moving)] == [queue]
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_long_wait_for_the_next_attempt_is_told_as_well() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)

    async def call(message: Message) -> None:
        raise ValueError("no stock")

    member = await cluster.member(consumed(call, orderly=True, retry=Policy([600]))).start()
    cluster.send(queue, b"x")
    await asyncio.sleep(15)
    reason = "#0 has failed: what is behind it waits for its attempt 2"
    assert member.consumer.snapshot().blocked == {queue: reason}
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_with_keys_stands_still_only_when_all_of_its_keys_wait() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)

    async def call(message: Message) -> None:
        if message.body == b"bad":
            raise ValueError("no stock")

    topic = consumed(call, order_by=lambda message: message.body, retries=-1)
    member = await cluster.member(topic).start()
    cluster.send(queue, b"bad")
    for _ in range(20):
        cluster.send(queue, b"good")
        await asyncio.sleep(1)
    assert member.consumer.snapshot().blocked == {}
    await asyncio.sleep(15)
    assert member.consumer.snapshot().blocked[queue].startswith("#0 has failed: ")
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_of_several_keys_the_message_is_named_that_is_not_done() -> None:
    cluster, has_failed = FakeCluster(), False
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)

    async def call(message: Message) -> None:
        nonlocal has_failed
        if message.body == b"bad":
            raise Retry(after=600)
        if not has_failed:
            has_failed = True
            raise Retry(after=1)

    topic = consumed(call, order_by=lambda message: message.body, retries=-1)
    member = await cluster.member(topic).start()
    cluster.send(queue, b"bad")
    await asyncio.sleep(1)
    cluster.send(queue, b"good")
    await asyncio.sleep(20)
    reason = "#0 has failed: what is behind it waits for its attempt 2"
    assert member.consumer.counters.handled == 1
    assert member.consumer.snapshot().blocked == {queue: reason}
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_messages_that_its_broker_passes_over_are_no_progress_of_a_queue() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)

    async def call(message: Message) -> None:
        raise ValueError("no stock")

    member = await cluster.member(consumed(call, orderly=True, retries=-1, tags="wanted")).start()
    for number in range(30):
        cluster.send(queue, b"x", TAGS="other" if number % 6 else "wanted")
        await asyncio.sleep(1)
    snapshot = member.consumer.snapshot()
    assert snapshot.blocked[queue].startswith("#0 has failed: ")
    (one,) = (each for each in snapshot.queues if each.queue == queue)
    assert (one.position, one.unfinished, one.finished) == (30, 5, 0)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_message_that_is_done_is_not_named_while_an_earlier_one_runs() -> None:
    cluster, has_failed = FakeCluster(), False
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)

    async def call(message: Message) -> None:
        nonlocal has_failed
        if message.body == b"long":
            await asyncio.sleep(25)
        elif not has_failed:
            has_failed = True
            raise Retry(after=1)

    member = await cluster.member(consumed(call, order_by=lambda message: message.body)).start()
    cluster.send(queue, b"long")
    cluster.send(queue, b"good")
    await asyncio.sleep(20)
    assert "has failed" not in member.consumer.snapshot().blocked.get(queue, "")
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_that_was_idle_has_its_time_from_the_first_message_on() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)

    async def call(message: Message) -> None:
        raise ValueError("no stock")

    member = await cluster.member(consumed(call, orderly=True)).start()
    await asyncio.sleep(30)
    cluster.send(queue, b"x")
    await asyncio.sleep(5)
    assert member.consumer.snapshot().blocked == {}
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
@pytest.mark.parametrize("how", [{"orderly": True}, {"order_by": hash}, {}], ids=["orderly", "keyed", "concurrent"])
async def test_a_queue_says_that_its_message_is_parked_until_it_is_done(how: dict[str, Any]) -> None:
    cluster, has_ended = FakeCluster(), asyncio.Event()
    await cluster.start()
    (queue,) = cluster.create("topic", queues=1)

    async def call(message: Message) -> None:
        if not has_ended.is_set():
            raise Park(1.0, "another copy is being handled")

    member = await cluster.member(consumed(call, **how)).start()
    cluster.send(queue, b"x")
    await asyncio.sleep(15)
    assert member.consumer.snapshot().blocked == {queue: "#0 is parked: another copy is being handled"}
    assert [event.queue for event in member.events.of(QueueBlocked)] == [queue]
    has_ended.set()
    await asyncio.sleep(3)
    assert member.consumer.snapshot().blocked == {}
    assert member.consumer.counters.handled == 1
    assert await member.stop()
    await cluster.stop()
