"""Pausing a topic: nothing of it starts, and everything of it is there when it is resumed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.push_consumer import PushConsumer
from rocketapp.model.event import Moving, QueueBlocked
from rocketapp.model.names import retry_topic
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed, consumed_by, subscription
from tests.unit.scripted import eventually, in_virtual_time


class Seen(list[bytes]):
    """A handler that remembers bodies, and takes its time."""

    async def __call__(self, message: Message) -> None:
        self.append(message.body)
        await asyncio.sleep(0.01)


async def started() -> FakeCluster:
    cluster = FakeCluster()
    await cluster.start()
    return cluster


def reasons(consumer: PushConsumer, topic: str = "topic") -> set[str]:
    return {reason for queue, reason in consumer.snapshot().blocked.items() if queue.topic == topic}


@pytest.mark.parametrize("options", [{}, {"orderly": True}, {"batch": 8}])
@in_virtual_time
async def test_a_paused_topic_starts_nothing_keeps_its_queues_and_goes_on_where_it_was(options: dict[str, Any]) -> None:
    cluster, seen = await started(), list[bytes]()

    async def handle(message: Any) -> None:
        seen.extend(each.body for each in (message if isinstance(message, list) else [message]))
        await asyncio.sleep(0.01)

    queues = cluster.create("topic", queues=2)
    for queue in queues:
        cluster.send_many(queue, 300)
    member = await cluster.member(consumed(handle, concurrency=4, **options)).start()
    await eventually(lambda: len(seen) >= 40)
    member.consumer.pause("topic", "maintenance")
    at_pause = len(seen)
    pulls = len(cluster.requests(RequestCode.PULL_MESSAGE, topic="topic"))
    await asyncio.sleep(100)
    assert len(seen) == at_pause
    assert len(cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")) <= pulls + 2
    assert reasons(member.consumer) == {"paused: maintenance"}
    snapshot = member.consumer.snapshot()
    assert snapshot.paused == {"topic": "paused: maintenance"}
    assert all((one.oldest_ms is not None) == (one.unfinished > 0) for one in snapshot.queues)
    assert not member.events.of(Moving)
    # What ran may finish, and is committed.
    done = sum(cluster.committed(queue) or 0 for queue in queues)
    assert 0 < done <= at_pause
    member.consumer.resume("topic")
    await eventually(lambda: len(seen) >= 600, seconds=60)
    assert reasons(member.consumer) == set()
    assert member.consumer.snapshot().paused == {}
    assert len(seen) == 600
    assert await member.stop()
    assert [cluster.committed(queue) for queue in queues] == [300, 300]
    await cluster.stop()


@pytest.mark.parametrize("options", [{}, {"orderly": True}])
@in_virtual_time
async def test_what_a_pull_from_before_a_pause_brings_is_not_kept_and_is_pulled_after_it(
    options: dict[str, Any],
) -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    member = await cluster.member(consumed(seen, **options)).start()
    await asyncio.sleep(1)  # its pull is kept by the broker
    member.consumer.pause("topic", "maintenance")
    cluster.send_many(queue, 5)
    await asyncio.sleep(100)
    assert [one.unfinished for one in member.consumer.snapshot().queues if one.queue == queue] == [0]
    member.consumer.resume("topic")
    await eventually(lambda: len(seen) == 5)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_pause_during_a_drain_starts_nothing_more() -> None:
    cluster, started_at = await started(), list[float]()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 30, TAGS="slow")
    cluster.send(queue, b"last", TAGS="fast")

    async def slow(_: Message) -> None:
        started_at.append(cluster.loop.time())
        await asyncio.sleep(1)

    async def fast(_: Message) -> None: ...

    handlers = [
        Handler(subscription("slow", tags="slow", concurrency=1), slow),
        Handler(subscription("fast", tags="fast"), fast),
    ]
    member = await cluster.member(consumed_by(*handlers)).start()
    await asyncio.sleep(2.5)
    stopping = asyncio.ensure_future(member.stop(drain_timeout=300))
    await asyncio.sleep(0.1)
    member.consumer.pause("topic", "sink down")
    at_pause = len(started_at)
    await asyncio.wait([stopping], timeout=5)
    assert stopping.done()
    assert len(started_at) == at_pause
    await cluster.stop()


@in_virtual_time
async def test_a_topic_goes_on_when_every_reason_was_lifted() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    member = await cluster.member(consumed(seen)).start()
    await eventually(lambda: bool(cluster.held[queue]))
    member.consumer.pause("topic", "maintenance")
    member.consumer.pause("topic", "sink down")
    cluster.send_many(queue, 3)
    await asyncio.sleep(20)
    assert reasons(member.consumer) == {"paused: maintenance, sink down"}
    member.consumer.resume("topic", "maintenance")
    await asyncio.sleep(20)
    assert not seen
    assert reasons(member.consumer) == {"paused: sink down"}
    member.consumer.resume("topic", "sink down")
    await eventually(lambda: len(seen) == 3, seconds=1)
    told = [event.reason for event in member.events.of(QueueBlocked)]
    assert told[0] == "paused: maintenance"
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_pause_from_before_the_start_holds_and_other_topics_go_on() -> None:
    cluster, seen, others = await started(), Seen(), Seen()
    (queue,), (other,) = cluster.create("topic"), cluster.create("other")
    cluster.send_many(queue, 3)
    cluster.send_many(other, 3)
    member = cluster.member(consumed(seen), consumed(others, topic="other"))
    member.consumer.pause("topic", "not yet")
    await member.start()
    await eventually(lambda: len(others) == 3)
    await asyncio.sleep(60)
    assert not seen
    assert reasons(member.consumer) == {"paused: not yet"}
    assert reasons(member.consumer, "other") == set()
    assert cluster.requests(RequestCode.PULL_MESSAGE, topic="topic") == []
    report = await member.consumer.idle()
    assert report.reasons == ("topic@broker-a:0: committed 0, ends at 3",)
    member.consumer.resume("topic", "not yet")
    await eventually(lambda: len(seen) == 3)
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True])
@in_virtual_time
async def test_a_pause_holds_over_rebalances_and_lost_connections(orderly: bool) -> None:
    cluster, seen = await started(), Seen()
    queues = cluster.create("topic", queues=4)
    for queue in queues:
        cluster.send_many(queue, 200)

    def member() -> Member:
        return cluster.member(consumed(seen, orderly=orderly, concurrency=2))

    first = await member().start()
    await eventually(lambda: len(seen) >= 20)
    first.consumer.pause("topic", "maintenance")
    second = member()
    second.consumer.pause("topic", "maintenance")
    await asyncio.sleep(1)
    at_pause = len(seen)
    await second.start()
    await asyncio.sleep(60)
    # A living, paused member keeps its share.
    assert len((await first.consumer.idle()).owned & set(queues)) == 2
    await second.stop()
    await asyncio.sleep(60)
    cluster.network.cut("127.0.0.1:10911")
    await asyncio.sleep(60)
    assert len((await first.consumer.idle()).owned & set(queues)) == 4
    assert len(seen) == at_pause
    assert reasons(first.consumer) == {"paused: maintenance"}
    since = [type(event) for event in first.events.of(Moving) if event.queue in queues]
    assert since == []
    first.consumer.resume("topic")
    await eventually(lambda: len(seen) >= 800, seconds=120)
    assert len(seen) == 800
    await first.stop()
    await cluster.stop()


@in_virtual_time
async def test_held_retries_of_a_paused_topic_stop_no_retries_of_another() -> None:
    cluster, tried = await started(), dict[str, list[int]]()

    async def fail_once(message: Message) -> None:
        tried.setdefault(message.topic, []).append(message.attempt)
        if message.attempt == 1:
            raise ValueError("again")

    (queue,), (other,) = cluster.create("topic"), cluster.create("other")
    cluster.send_many(queue, 300)
    topics = consumed(fail_once), consumed(fail_once, topic="other")
    config = ConsumerConfig(queue_max_messages=50, queue_max_span=100)
    member = await cluster.member(*topics, config=config).start()
    await eventually(lambda: member.consumer.counters.retried == 300)
    # The pause comes when the retry queue is full of what it will hold.
    member.consumer.pause("topic", "maintenance")
    await asyncio.sleep(60)
    cluster.send_many(other, 100)
    await eventually(lambda: len(tried.get("other", [])) == 200, seconds=30)
    assert len(tried["topic"]) == 300
    # It is pulled all the same.
    assert reasons(member.consumer, retry_topic("group")) == {"paused: maintenance"}
    member.consumer.resume("topic")
    await eventually(lambda: len(tried["topic"]) == 600, seconds=30)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_retry_queue_without_room_says_that_topics_are_paused() -> None:
    cluster = await started()

    async def fail(message: Message) -> None:
        raise ValueError("again")

    (queue,) = cluster.create("topic")
    for _ in range(100):
        cluster.send(queue, bytes(1000))
    topics = consumed(fail), consumed(fail, topic="other")
    member = await cluster.member(*topics, cache_bytes=50_000).start()
    await eventually(lambda: member.consumer.counters.retried == 100, seconds=9)
    member.consumer.pause("topic", "maintenance")
    await asyncio.sleep(60)
    (reason,) = reasons(member.consumer, retry_topic("group"))
    assert "limit cache_max_bytes 50000" in reason
    assert reason.endswith("; topics of the group are paused: maintenance")
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_retried_messages_of_a_paused_topic_wait_and_those_of_others_do_not() -> None:
    cluster, tried = await started(), dict[str, list[int]]()

    async def fail_once(message: Message) -> None:
        tried.setdefault(message.topic, []).append(message.attempt)
        if message.attempt == 1:
            raise ValueError("again")

    (queue,), (other,) = cluster.create("topic"), cluster.create("other")
    cluster.send(queue, b"a")
    cluster.send(other, b"b")
    member = await cluster.member(consumed(fail_once), consumed(fail_once, topic="other")).start()
    await eventually(lambda: tried == {"topic": [1], "other": [1]})
    member.consumer.pause("topic", "maintenance")
    await asyncio.sleep(120)
    assert tried == {"topic": [1], "other": [1, 2]}
    assert (await member.consumer.idle()).reasons != ()
    member.consumer.pause("other", "as well")
    assert reasons(member.consumer, retry_topic("group")) == {"paused: maintenance, as well"}
    member.consumer.resume("other")
    member.consumer.resume("topic")
    await eventually(lambda: tried == {"topic": [1, 2], "other": [1, 2]})
    assert await member.stop()
    await cluster.stop()
