"""A stop finishes what was started, commits it, and leaves the group last."""

from __future__ import annotations

import asyncio
import re

import pytest

from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.errors import SetupError
from rocketapp.model.event import DrainCut, SendBackFailed
from rocketapp.model.snapshot import HandlerStats
from rocketapp.plugins.log_lines import line_of
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed, consumed_by, subscription
from tests.unit.consumer.seen import Gated, Seen, started
from tests.unit.scripted import eventually, in_virtual_time


@in_virtual_time
async def test_stopping_drops_what_was_not_started_and_finishes_what_was() -> None:
    cluster, gated = await started(), Gated()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 100)
    member = await cluster.member(consumed(gated, concurrency=10)).start()
    await eventually(lambda: len(gated) == 10)
    stopping = asyncio.ensure_future(member.stop())
    await asyncio.sleep(1)
    gated.gate.set()
    assert await stopping
    assert len(gated) == len(gated.done) == 10
    assert cluster.committed(queue) == 10
    await cluster.stop()


@in_virtual_time
async def test_stopping_finishes_what_lies_below_something_that_was_started() -> None:
    cluster, slow, quick = await started(), Gated(), Seen()
    (queue,) = cluster.create("topic")
    for number in range(60):
        cluster.send(queue, str(number).encode(), TAGS="quick" if number % 2 else "slow")
    handlers = (
        Handler(subscription("slow", tags="slow", concurrency=5), slow),
        Handler(subscription("quick", tags="quick"), quick),
    )
    member = await cluster.member(consumed_by(*handlers)).start()
    await eventually(lambda: len(quick) == 30)
    assert len(slow) == 5
    stopping = asyncio.ensure_future(member.stop())
    await asyncio.sleep(1)
    slow.gate.set()
    assert await stopping
    # Message 59 was done by the quick handler, so the slow one had to do everything below.
    assert len(slow.done) == 30
    assert cluster.committed(queue) == 60
    await cluster.stop()


@in_virtual_time
async def test_stopping_starts_nothing_more_when_another_member_begins_with_the_queue() -> None:
    cluster = await started()
    (queue,) = cluster.create("topic")
    for number in range(60):
        cluster.send(queue, str(number).encode(), TAGS="quick" if number % 2 else "slow")

    by_first, by_second = list[bytes](), list[bytes]()
    first = await cluster.member(slow_and_quick(by_first, 0.7)).start()
    await eventually(lambda: len(by_first) == 2)
    second = cluster.member(slow_and_quick(by_second, 0.7), client_id="0")
    stopping = asyncio.ensure_future(first.stop())
    # It sorts before the first, so it gets the queue.
    await second.start()
    await eventually(lambda: len(by_second) == 1)
    before = len(by_first)
    assert await stopping
    assert len(by_first) == before
    await eventually(lambda: cluster.committed(queue) == 60, 60)
    assert len(by_first) + len(by_second) <= 30 + 1
    await second.stop()
    await cluster.stop()


def slow_and_quick(called: list[bytes], seconds: float) -> ConsumedTopic:
    """One call at a time for the tag `slow`, and none that takes time for `quick`."""

    async def slow(message: Message) -> None:
        called.append(message.body)
        await asyncio.sleep(seconds)

    return consumed_by(
        Handler(subscription("slow", tags="slow", concurrency=1), slow),
        Handler(subscription("quick", tags="quick"), Seen()),
    )


@in_virtual_time
async def test_a_stop_during_a_hand_over_does_not_begin_its_second_anew() -> None:
    cluster, by_first, by_second = await started(), list[bytes](), list[bytes]()
    (queue,) = cluster.create("topic")
    first = await cluster.member(slow_and_quick(by_first, 0.1)).start()
    for number in range(60):
        cluster.send(queue, str(number).encode(), TAGS="slow")
    cluster.send(queue, b"last", TAGS="quick")
    await asyncio.sleep(0.5)
    second = cluster.member(slow_and_quick(by_second, 0.1), client_id="0")
    await second.start()
    await asyncio.sleep(0.8)
    stopping = asyncio.ensure_future(first.stop())
    await eventually(lambda: len(by_second) == 1)
    await asyncio.sleep(5)
    assert await stopping
    assert set(by_first) & set(by_second) == set()
    await second.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_stop_finishes_what_it_started_of_a_queue_that_no_route_names_for_a_moment() -> None:
    """The queue is not wanted then, and no other member has it either."""
    cluster, called = FakeCluster(brokers=2), list[bytes]()
    await cluster.start()
    queue = cluster.create("topic")[1]
    member = await cluster.member(slow_and_quick(called, 0.3)).start()
    await asyncio.sleep(1)
    for tag in ("slow", "quick"):
        for _ in range(20):
            cluster.send(queue, tag.encode(), TAGS=tag)
    await eventually(lambda: len(called) == 1)
    route = cluster.topics["topic"].pop("broker-b")
    member.client.routes.refresh_soon("topic")
    await asyncio.sleep(0.5)
    cluster.topics["topic"]["broker-b"] = route
    assert await member.stop(drain_timeout=30)
    assert cluster.committed(queue) == 40
    await cluster.stop()


@pytest.mark.parametrize("how", ["cut", "timeout"])
def test_a_cut_drain_commits_nothing_that_was_not_finished(how: str) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = await started()
        (queue,) = cluster.create("topic")
        cluster.send_many(queue, 10)
        ended: list[bytes] = []

        async def handler(message: Message) -> None:
            if message.offset >= 3:
                await asyncio.sleep(10_000)
            ended.append(message.body)

        member = await cluster.member(consumed(handler)).start()
        await eventually(lambda: len(ended) == 3)
        cut, began = asyncio.Event(), cluster.loop.time()
        if how == "cut":
            cluster.loop.call_later(2, cut.set)
        assert not await member.stop(drain_timeout=5.0, cut=cut)
        assert cluster.loop.time() - began < (2.5 if how == "cut" else 5.5)
        (told,) = member.events.of(DrainCut)
        assert isinstance(told, DrainCut)
        assert (told.handler, told.topic, told.others) == ("handler", "topic", 6)
        assert told.seconds == pytest.approx(2 if how == "cut" else 5)
        assert cluster.committed(queue) == 3
        assert member.consumer.counters == HandlerStats(handled=3)
        assert not cluster.requests(RequestCode.CONSUMER_SEND_MSG_BACK)
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_stop_without_an_end_says_which_failed_messages_could_not_be_sent_back() -> None:
    cluster = await started()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 3)

    async def fails(message: Message) -> None:
        raise ValueError

    member = await cluster.member(consumed(fails)).start()
    for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
        cluster.refuse(code)
    await eventually(lambda: len(member.events.of(SendBackFailed)) >= 3)
    assert not await member.stop(drain_timeout=5.0)
    (told,) = member.events.of(DrainCut)
    assert re.fullmatch(r"cut after 5 s: handler could not send back \(topic \w+ and 2 more\)", line_of(told).text)
    await cluster.stop()


@in_virtual_time
async def test_a_stop_ends_every_loop_of_the_group_also_while_a_message_waits_to_be_sent_back() -> None:
    cluster = FakeCluster()
    await cluster.start()
    for name in ("topic", "ordered"):
        (queue,) = cluster.create(name, queues=1)
        cluster.send(queue, b"x")

    async def call(_: Message) -> None:
        raise ValueError("bad")

    cluster.refuse(RequestCode.CONSUMER_SEND_MSG_BACK)
    member = await cluster.member(consumed(call), consumed(call, topic="ordered", orderly=True)).start()
    await asyncio.sleep(5)
    await member.stop(drain_timeout=2)
    await cluster.stop()
    assert asyncio.all_tasks() == {asyncio.current_task()}


@in_virtual_time
async def test_the_group_is_left_last() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 5)
    member = await cluster.member(consumed(seen)).start()
    await eventually(lambda: len(seen) == 5)
    await member.stop()
    last = [asked.code for asked in cluster.asked if asked.code != RequestCode.PULL_MESSAGE][-1]
    assert last == RequestCode.UNREGISTER_CLIENT
    await cluster.stop()


@in_virtual_time
async def test_a_second_consumer_of_the_same_group_in_one_client_is_refused() -> None:
    cluster = await started()
    cluster.create("topic")
    member = await cluster.member(consumed(Seen())).start()
    other = cluster.member(consumed(Seen()), client=member.client)
    with pytest.raises(SetupError):
        await other.consumer.join()
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True])
def test_a_program_that_fails_without_stopping_its_consumer_still_ends(orderly: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, gated = await started(), Gated()
        (queue,) = cluster.create("topic")
        cluster.send_many(queue, 50)
        await cluster.member(consumed(gated, orderly=orderly, concurrency=4)).start()
        await eventually(lambda: len(gated) > 0)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        story()


# Idle.
