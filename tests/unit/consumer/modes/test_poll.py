"""Polled handlers in one process: what a change of limits leaves alone, and what comes back of an earlier version."""

from __future__ import annotations

import asyncio
from typing import Any

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.modes.table import Modes
from rocketapp.model.event import LoopFailed, QueueBlocked
from rocketapp.model.names import dlq_topic
from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.pauses import Probe
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire import properties as names
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed, subscription
from tests.unit.consumer.modes.contexts import ScriptedLock, mode_context, under
from tests.unit.consumer.reports import QUEUE, message
from tests.unit.scripted import eventually, in_virtual_time


async def _fails(message: Any) -> None:
    raise ValueError("not yet")


async def _pulls(one: Any) -> None:
    await one.take(32)


async def _pulls_nothing(one: Any) -> None: ...


@in_virtual_time
async def test_a_full_queue_that_waits_for_its_next_call_is_reported_when_that_is_late() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    member = await cluster.member(consumed(_pulls_nothing, every=600.0)).start()
    await asyncio.sleep(1)
    member.consumer.adjust({"topic": {"queue_max_messages": 32}})
    cluster.send_many(queue, 32)
    await asyncio.sleep(60)
    assert member.events.of(QueueBlocked) == []
    reason = "flow control: 32 unfinished messages, limit queue_max_messages 32"
    assert member.consumer.snapshot().blocked[queue] == reason
    await asyncio.sleep(600)
    (told,) = member.events.of(QueueBlocked)
    assert told.reason == reason  # type: ignore[attr-defined]
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_what_a_call_has_done_is_committed_long_before_the_next_call() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"a")
    config = ConsumerConfig(subscription_check="off", commit_interval=500.0)
    member = await cluster.member(consumed(_pulls, every=600.0), config=config).start()
    await eventually(lambda: cluster.committed(queue) == 1, 5)
    assert cluster.committed(queue) == 1
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_call_gets_what_its_queue_may_hold_and_does_not_wait_for_more() -> None:
    taken: list[tuple[int, float]] = []

    async def pulls_all(one: Any) -> None:
        while messages := await one.take(40):
            taken.append((len(messages), round(loop.time() - began, 1)))

    cluster, loop = FakeCluster(), asyncio.get_running_loop()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 150)
    config = ConsumerConfig(subscription_check="off", queue_max_messages=64)
    began = loop.time()
    member = await cluster.member(consumed(pulls_all, every=20.0), config=config).start()
    await asyncio.sleep(50)
    first = sum(count for count, at in taken if at == 0.0)
    assert 64 <= first < 96
    assert [at for _, at in taken if at not in (0.0, 20.0)] == []
    assert sum(count for count, _ in taken) == 150
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_what_comes_back_for_a_retry_when_its_topic_is_polled_by_now_becomes_a_dead_letter() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"failed")
    old = await cluster.member(consumed(_fails)).start()
    await eventually(lambda: cluster.committed(queue) == 1, 20)
    await old.stop()
    new = await cluster.member(consumed(_pulls, every=5.0)).start()
    await eventually(lambda: cluster.bodies(dlq_topic("group")) == [b"failed"], 60)
    (properties,) = [names.decode(one.raw_properties) for at, one in cluster.records if at.topic == dlq_topic("group")]
    assert properties["rocketapp.reason"] == "it came back for a retry, and its topic is polled by now"
    await new.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_call_that_a_pause_keeps_from_beginning_waits_for_no_free_call() -> None:
    cluster, begun = FakeCluster(), list[float]()
    await cluster.start()
    cluster.create("topic")

    async def polls(one: Any) -> None:
        begun.append(cluster.loop.time())

    member = await cluster.member(consumed(polls, every=5.0, concurrency=1)).start()
    await asyncio.sleep(1)
    member.consumer.pause("topic", "by the test")
    await asyncio.sleep(30)
    member.consumer.resume("topic")
    await asyncio.sleep(1)
    assert len(begun) == 2
    assert {event.reason for event in member.events.of(QueueBlocked)} == {"paused: by the test"}
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_that_waits_for_a_free_call_names_the_concurrency_of_now() -> None:
    cluster = FakeCluster()
    await cluster.start()
    cluster.create("topic", queues=3)

    async def hangs(one: Any) -> None:
        await asyncio.sleep(60)

    member = await cluster.member(consumed(hangs, every=5.0, concurrency=1)).start()
    await asyncio.sleep(1)
    member.consumer.adjust({"topic": {"concurrency": 2}})
    await asyncio.sleep(75)
    assert any("(concurrency 2)" in why for why in member.consumer.snapshot().blocked.values())
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_call_that_has_pulled_nothing_when_a_drain_is_cut_is_named() -> None:
    cluster = FakeCluster()
    await cluster.start()
    (queue,) = cluster.create("topic")

    async def hangs(one: Any) -> None:
        await asyncio.Event().wait()

    member = await cluster.member(consumed(hangs, name="exports", every=5.0)).start()
    await asyncio.sleep(1)
    assert not await member.consumer.stop(drain_timeout=5.0, cut=asyncio.Event())
    told = [(event.loop, event.error) for event in member.events.of(LoopFailed)]  # type: ignore[attr-defined]
    assert told == [(f"poll {queue}", "handler exports is cut: it has pulled nothing")]
    await member.client.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_whose_turn_comes_after_a_pause_is_not_called() -> None:
    cluster, ends, calls = FakeCluster(), asyncio.Event(), list[Any]()
    await cluster.start()
    cluster.create("topic", queues=2)

    async def waits(one: Any) -> None:
        calls.append(one.queue)
        await ends.wait()

    member = await cluster.member(consumed(waits, every=5.0, concurrency=1)).start()
    await eventually(lambda: len(calls) == 1)
    member.consumer.pause("topic", "maintenance")
    ends.set()
    await asyncio.sleep(20)
    assert len(calls) == 1
    member.consumer.resume("topic")
    await eventually(lambda: len(set(calls)) == 2)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_queue_is_given_back_at_once_while_it_is_uncertain_whether_its_lock_held_during_the_call() -> None:
    lock = ScriptedLock()

    async def loses_the_lock(_: Any) -> None:
        lock.run_out()

    mode = Modes(mode_context([Handler(subscription(every=5.0), loses_the_lock)])).of("topic")
    delivery = mode.open(under(lock, ProcessQueue(QUEUE, 0)))
    await asyncio.sleep(1)
    delivery.end()
    async with asyncio.timeout(1):
        await delivery.drained()
    assert await delivery.abandon()
    await mode.callers.stop()


@in_virtual_time
async def test_a_queue_whose_lock_was_lost_during_a_call_is_polled_in_its_next_session() -> None:
    lock, taken = ScriptedLock(), list[int]()

    async def loses_the_lock(batch: Any) -> None:
        taken.extend(one.offset for one in await batch.take(32))
        lock.run_out()

    mode = Modes(mode_context([Handler(subscription(every=5.0), loses_the_lock)])).of("topic")
    for _ in range(2):
        lock = ScriptedLock()
        taken.clear()
        process_queue = ProcessQueue[Message](QUEUE, 0)
        delivery = mode.open(under(lock, process_queue))
        process_queue.put([message(0)])
        delivery.deliver([message(0)])
        await eventually(lambda: taken == [0])
        lock.decide(False)
        await delivery.over
        await delivery.drained()
        assert process_queue.commit_offset == 0
    await mode.callers.stop()


@in_virtual_time
async def test_a_probe_that_still_runs_when_the_next_one_begins_pulls_no_more() -> None:
    goes_on, taken = asyncio.Event(), list[tuple[int, int]]()

    async def pulls_later(batch: Any) -> None:
        taken.append((batch.queue.queue_id, len(await batch.take(1))))
        await goes_on.wait()
        taken.append((batch.queue.queue_id, len(await batch.take(1))))

    context = mode_context([Handler(subscription(every=5.0, concurrency=2), pulls_later)])
    mode, pauses = Modes(context).of("topic"), context.member.pauses
    pauses.pause("topic", "breaker")
    for number in range(2):
        queue = QUEUE._replace(queue_id=number)
        process_queue = ProcessQueue[Message](queue, 0)
        delivery: Any = mode.open(under(ScriptedLock(), process_queue))
        delivery.deliver(process_queue.put([message(offset, queue=queue) for offset in range(2)]))
        await asyncio.sleep(1)
        pauses.probe("topic", "breaker", Probe("handler", HandlerStats()))
        await eventually(lambda: len(taken) == number + 1)  # noqa: B023 - it is waited for in this turn
    goes_on.set()
    await eventually(lambda: len(taken) == 4)
    assert sorted(taken[:2]) == [(0, 1), (1, 1)]
    assert sorted(taken[2:]) == [(0, 0), (1, 1)]
    await mode.callers.stop()
