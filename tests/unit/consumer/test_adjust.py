"""Limits that are changed while a member runs hold at once, for every way of consuming."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.model.event import Adjusted
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed
from tests.unit.scripted import eventually, in_virtual_time

WAYS: dict[str, dict[str, Any]] = {
    "concurrent": {},
    "orderly": {"orderly": True},
    "keyed": {"order_by": lambda message: message.body},
}


class Busy:
    """A handler whose calls take a second."""

    def __init__(self) -> None:
        self.running, self.started = 0, list[float]()

    async def __call__(self, message: Message) -> None:
        self.running += 1
        self.started.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1.0)
        self.running -= 1


async def begun(busy: Any, *, queues: int = 8, messages: int = 100, **options: Any) -> tuple[FakeCluster, Member]:
    cluster = FakeCluster()
    await cluster.start()
    for queue in cluster.create("topic", queues):
        cluster.send_many(queue, messages)
    config = ConsumerConfig(subscription_check="off", **options.pop("config", {}))
    return cluster, await cluster.member(consumed(busy, **options), config=config).start()


def adjust(member: Member, **values: float | None) -> None:
    member.consumer.adjust({"topic": values})


@pytest.mark.parametrize("way", WAYS)
def test_concurrency_grows_and_shrinks(way: str) -> None:
    @in_virtual_time
    async def story() -> None:
        busy = Busy()
        cluster, member = await begun(busy, concurrency=3, **WAYS[way])
        await eventually(lambda: busy.running == 3)
        adjust(member, concurrency=6)
        await eventually(lambda: busy.running == 6)
        adjust(member, concurrency=2)
        # Each call may have taken a run of messages that it ends first.
        await eventually(lambda: busy.running == 2, 120)
        count = len(busy.started)
        await asyncio.sleep(10)
        assert len(busy.started) - count == pytest.approx(20, abs=2)
        adjust(member, concurrency=None)
        await eventually(lambda: busy.running == 3)
        assert member.events.of(Adjusted)[0] == Adjusted("group", "topic", "concurrency 6")
        await member.stop(drain_timeout=0.1)
        await cluster.stop()

    story()


@pytest.mark.parametrize("way", WAYS)
def test_another_rate_holds_at_once_also_for_what_waits(way: str) -> None:
    @in_virtual_time
    async def story() -> None:
        busy = Busy()
        cluster, member = await begun(busy, rate=0.01, concurrency=50, **WAYS[way])
        await eventually(lambda: len(busy.started) == 1)
        await asyncio.sleep(2)
        adjust(member, rate=4.0)
        count = len(busy.started)
        await asyncio.sleep(20)
        assert len(busy.started) - count == pytest.approx(80, abs=4)
        await member.stop(drain_timeout=0.1)
        await cluster.stop()

    story()


@in_virtual_time
async def test_other_limits_of_pulls_hold_for_queues_that_are_there_and_for_those_that_come() -> None:
    gate = asyncio.Event()

    async def wait(message: Message) -> None:
        await gate.wait()

    limits = {"queue_max_messages": 40, "pull_batch_size": 10}
    cluster, member = await begun(wait, queues=2, messages=300, config=limits)

    def held() -> list[int]:
        return [each.unfinished for each in member.consumer.snapshot().queues if each.queue.topic == "topic"]

    await eventually(lambda: held() == [50, 50])  # and an answer that was under way
    adjust(member, queue_max_messages=80)
    await eventually(lambda: held() == [90, 90])
    adjust(member, queue_max_messages=10, pull_batch_size=5)
    for queue in cluster.create("topic", 3)[2:]:
        cluster.send_many(queue, 300)
    await eventually(lambda: held() == [90, 90, 15], 60)
    assert cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")[-1].fields["maxMsgNums"] == "5"
    assert member.consumer.snapshot().adjusted == {"topic": {"queue_max_messages": 10, "pull_batch_size": 5}}
    adjust(member, queue_max_messages=None, pull_batch_size=None, pull_interval=5.0)
    gate.set()
    await eventually(lambda: member.consumer.counters.handled > 200)
    asked = len(cluster.requests(RequestCode.PULL_MESSAGE, topic="topic"))
    await asyncio.sleep(20)
    assert len(cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")) - asked <= 3 * 5
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_batch_in_order_that_failed_is_tried_again_in_smaller_ones() -> None:
    calls = list[list[bytes]]()

    async def fail_once(messages: list[Message]) -> None:
        calls.append([message.body for message in messages])
        if len(calls) == 1:
            raise OSError("too many rows")

    cluster, member = await begun(fail_once, queues=1, messages=6, orderly=True, batch=4)
    await eventually(lambda: len(calls) == 1)
    adjust(member, batch=2)
    await eventually(lambda: member.consumer.counters.handled == 6)
    assert calls == [[b"0", b"1", b"2", b"3"], [b"0", b"1"], [b"2", b"3"], [b"4", b"5"]]
    adjust(member, batch=None)
    (queue,) = [one.queue for one in member.consumer.snapshot().queues if one.queue.topic == "topic"]
    cluster.send_many(queue, 4)
    await eventually(lambda: calls[4:] == [[b"6", b"7", b"8", b"9"]])
    await member.stop()
    await cluster.stop()
