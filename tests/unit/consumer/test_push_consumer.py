"""One member: the way of a message from the pull to the committed offset, and what may go wrong on it."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import Handler
from rocketapp.errors import ConfigError
from rocketapp.model.event import Assigned, Handled, HandlerSlow, Moving, QueueBlocked, Unmatched
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.snapshot import HandlerStats
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import consumed, consumed_by, subscription
from tests.unit.consumer.seen import Gated, Seen, started
from tests.unit.scripted import eventually, in_virtual_time


@in_virtual_time
async def test_messages_are_handled_and_their_offsets_committed_with_an_answer() -> None:
    cluster, seen = await started(), Seen()
    queues = cluster.create("topic", queues=2)
    for queue in queues:
        cluster.send_many(queue, 100)
    member = await cluster.member(consumed(seen)).start()
    await eventually(lambda: len(seen) == 200)
    assert all(each.position is not None for each in member.consumer.snapshot().queues)  # idle ones as well
    assert await member.stop()
    assert [cluster.committed(queue) for queue in queues] == [100, 100]
    assert member.consumer.counters == HandlerStats(handled=200)
    await cluster.stop()


@in_virtual_time
async def test_the_first_heartbeat_comes_before_the_first_pull_and_both_at_once() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"a")
    member = await cluster.member(consumed(seen)).start()
    await eventually(lambda: seen == [b"a"])
    assert cluster.loop.time() < 0.1
    codes = [asked.code for asked in cluster.asked]
    assert codes.index(RequestCode.HEART_BEAT) < codes.index(RequestCode.PULL_MESSAGE)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_member_without_keys_whom_every_broker_refuses_for_that_does_not_start() -> None:
    cluster = await started(brokers=2)
    cluster.create("topic")
    for code in (RequestCode.HEART_BEAT, RequestCode.GET_BROKER_RUNTIME_INFO):
        cluster.refuse(code, ResponseCode.NO_PERMISSION, remark="username cannot be null")
    member = cluster.member(consumed(Seen()))
    with pytest.raises(ConfigError, match=r"client\.access_key: is not set, and brokers want keys: .* cannot be null"):
        await member.start()
    await member.stop()
    await cluster.stop()


@in_virtual_time
@pytest.mark.parametrize("remark", ["the group is not allowed", ""])
async def test_a_member_whom_every_broker_refuses_for_another_reason_starts_and_waits(remark: str) -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"a")
    cluster.refuse(RequestCode.HEART_BEAT, ResponseCode.NO_PERMISSION, remark=remark)
    cluster.refuse(RequestCode.GET_BROKER_RUNTIME_INFO, ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
    member = await cluster.member(consumed(seen)).start()
    cluster.behave()
    await eventually(lambda: seen == [b"a"], 60.0)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_the_retry_queue_is_ours_right_after_the_first_heartbeat() -> None:
    cluster = await started()
    cluster.create("topic")
    member = await cluster.member(consumed(Seen())).start()
    retry = MessageQueue("%RETRY%group", "broker-a", 0)
    await asyncio.sleep(1)
    assert retry in [event.queue for event in member.events.of(Assigned)]  # type: ignore[attr-defined]
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_offsets_travel_with_the_pulls() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 100)
    member = await cluster.member(consumed(seen)).start()
    # The first commit of a session reads the offset before, so no pull carries it.
    await eventually(lambda: cluster.committed(queue) == 100, 6)
    before = len(cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET, topic="topic"))
    cluster.send_many(queue, 100)
    await eventually(lambda: (cluster.committed(queue) or 0) > 150)
    assert len(cluster.requests(RequestCode.UPDATE_CONSUMER_OFFSET, topic="topic")) == before
    await asyncio.sleep(5.1)
    assert cluster.committed(queue) == 200
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_one_unfinished_message_holds_the_committed_offset_back() -> None:
    cluster = await started()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 50)
    gate, done = asyncio.Event(), []

    async def handler(message: Message) -> None:
        if message.body == b"7":
            await gate.wait()
        done.append(message.body)

    member = await cluster.member(consumed(handler)).start()
    await eventually(lambda: len(done) == 49)
    await asyncio.sleep(11)
    assert cluster.committed(queue) == 7
    gate.set()
    await asyncio.sleep(6)
    assert cluster.committed(queue) == 50
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_suspended_handler_lets_others_go_on_up_to_its_concurrency() -> None:
    cluster, gated = await started(), Gated()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 300)
    member = await cluster.member(consumed(gated, concurrency=50)).start()
    await asyncio.sleep(3)
    assert len(gated) == 50
    gated.gate.set()
    await eventually(lambda: len(gated.done) == 300)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_handler_that_never_suspends_lets_the_loop_breathe() -> None:
    cluster = await started()
    queues = cluster.create("topic", queues=8)
    for queue in queues:
        cluster.send_many(queue, 500)
    turns = set()
    turn = [0]

    def tick() -> None:
        turn[0] += 1
        if len(seen) < 4000:
            cluster.loop.call_soon(tick)

    class Busy(Seen):
        async def __call__(self, message: Message) -> None:
            if not self:
                tick()
            await super().__call__(message)
            turns.add(turn[0])
            cluster.loop.stand_still(0.001)

    seen = Busy()
    member = await cluster.member(consumed(seen)).start()
    await eventually(lambda: len(seen) == 4000)
    # 4 seconds of work in turns of some milliseconds each.
    assert len(turns) > 50
    await member.stop()
    await cluster.stop()


# Where it begins.


@in_virtual_time
async def test_a_broker_that_forgot_us_is_told_again() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    member = await cluster.member(consumed(seen)).start()
    await asyncio.sleep(1)
    beats = len(cluster.requests(RequestCode.HEART_BEAT))
    cluster.refuse(RequestCode.PULL_MESSAGE, 24, times=1)
    cluster.send(queue, b"a")
    cluster.send(queue, b"b")
    await eventually(lambda: seen == [b"a", b"b"], 3.0)
    assert len(cluster.requests(RequestCode.HEART_BEAT)) == beats + 1
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_cut_connection_costs_less_than_a_second() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    member = await cluster.member(consumed(seen)).start()
    await asyncio.sleep(1)
    for number in range(20):
        cluster.network.cut(cluster.brokers["broker-a"].address)
        cluster.send(queue, str(number).encode())
        await eventually(lambda expected=number + 1: len(seen) == expected, 1.0)
        await asyncio.sleep(3)  # the pool waits longer between dials after a connection that ended at once
    assert await member.stop()
    assert len(seen) == 20
    await cluster.stop()


@in_virtual_time
async def test_the_locks_of_a_broker_that_is_back_are_asked_for_before_anything_else() -> None:
    cluster, seen = await started(), Seen()
    cluster.create("topic")
    member = await cluster.member(consumed(seen, orderly=True)).start()
    await asyncio.sleep(1)
    address = cluster.brokers["broker-a"].address
    cluster.network.hold(address)
    cluster.network.cut(address)
    await asyncio.sleep(0.7)
    before = len(cluster.requests(RequestCode.LOCK_BATCH_MQ))
    cluster.network.release(address)
    await asyncio.sleep(0.05)
    assert len(cluster.requests(RequestCode.LOCK_BATCH_MQ)) == before + 1
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_pull_that_is_never_answered_is_repeated() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"a")
    cluster.ignore(RequestCode.PULL_MESSAGE)
    member = await cluster.member(consumed(seen)).start()
    await asyncio.sleep(20)
    cluster.behave()
    await asyncio.sleep(15)
    assert seen == [b"a"]
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_damaged_record_stops_its_queue_aloud_and_is_never_skipped() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 2)
    record = cluster.log[queue][1]
    cluster.log[queue][1] = record._replace(topic="x" * 200)
    import tests.unit.consumer.fake_cluster as fake

    whole = fake.encode_record
    try:
        fake.encode_record = lambda each: whole(each)[:-1] if each.queue_offset == 1 else whole(each)  # type: ignore[assignment]
        member = await cluster.member(consumed(seen)).start()
        await asyncio.sleep(10)
        assert "pull failed" in member.consumer.snapshot().blocked[queue]
        assert cluster.committed(queue) == 0
    finally:
        fake.encode_record = whole
    await eventually(lambda: len(seen) == 2, 5.0)
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_filtered_messages_move_the_committed_offset_too() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 70, TAGS="other")
    member = await cluster.member(consumed(seen, tags="mine")).start()
    await asyncio.sleep(6)
    assert cluster.committed(queue) == 70
    assert seen == []
    await member.stop()
    await cluster.stop()


# Who gets what.


@in_virtual_time
async def test_handlers_are_told_apart_by_tag_and_unwanted_messages_are_counted() -> None:
    cluster = await started()
    (queue,) = cluster.create("topic")
    # Equal hashes: the broker cannot tell them apart, we can.
    for tag in ("Aa", "BB", "c", "d"):
        cluster.send(queue, tag.encode(), TAGS=tag)
    one, other = Seen(), Seen()
    first, second = subscription("one", tags="Aa"), subscription("other", tags="c || d")
    member = await cluster.member(consumed_by(Handler(first, one), Handler(second, other))).start()
    await eventually(lambda: len(one) + len(other) == 3)
    assert (one, other) == ([b"Aa"], [b"c", b"d"])
    await asyncio.sleep(6)
    assert cluster.committed(queue) == 4
    assert member.consumer.counters == HandlerStats(handled=3, unmatched=1)
    assert member.events.of(Unmatched) == [Unmatched("group", "topic", 1)]
    assert {(event.handler, event.count) for event in member.events.of(Handled)} == {("one", 1), ("other", 2)}  # type: ignore[attr-defined]
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_batches_are_full_or_what_came_in_time() -> None:
    cluster = await started()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 25)
    batches: list[list[bytes]] = []

    async def handler(messages: list[Message]) -> None:
        batches.append([message.body for message in messages])

    member = await cluster.member(consumed(handler, batch=10, batch_wait=0.5)).start()
    await asyncio.sleep(0.4)
    assert [len(batch) for batch in batches] == [10, 10]
    await asyncio.sleep(0.2)
    assert [len(batch) for batch in batches] == [10, 10, 5]
    await asyncio.sleep(6)
    assert cluster.committed(queue) == 25
    assert member.consumer.counters == HandlerStats(handled=25)
    await member.stop()
    await cluster.stop()


@in_virtual_time
@pytest.mark.parametrize("orderly", [False, True])
async def test_a_handler_may_empty_its_list(orderly: bool) -> None:
    cluster = await started()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 8)
    batches: list[int] = []

    async def handler(messages: list[Message]) -> None:
        batches.append(len(messages))
        while messages:
            if messages.pop().offset == 2 and len(batches) == 1:
                raise ValueError("the second last of the first batch")

    member = await cluster.member(consumed(handler, batch=4, orderly=orderly)).start()
    await eventually(lambda: member.consumer.counters.handled == 8, 60)
    assert sorted(batches) == [4, 4, 4]
    assert member.consumer.counters == HandlerStats(handled=8, retried=4)
    assert await member.stop()
    assert cluster.committed(queue) == 8
    await cluster.stop()


# Flow control.


@in_virtual_time
async def test_a_full_queue_is_not_pulled_until_a_part_is_finished() -> None:
    cluster, gated = await started(), Gated()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 1000)
    config = ConsumerConfig(queue_max_messages=100)
    member = await cluster.member(consumed(gated), config=config).start()
    await asyncio.sleep(8)
    assert len(cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")) <= 5
    assert "queue_max_messages" in member.consumer.snapshot().blocked[queue]
    assert [event.queue for event in member.events.of(QueueBlocked)] == [queue]  # type: ignore[attr-defined]
    gated.gate.set()
    await eventually(lambda: len(gated.done) == 1000)
    assert [event.queue for event in member.events.of(Moving)] == [queue]  # type: ignore[attr-defined]
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_the_bytes_of_all_queues_together_are_limited() -> None:
    cluster, gated = await started(), Gated()
    queues = cluster.create("topic", queues=8)
    for queue in queues:
        for _ in range(100):
            cluster.send(queue, b"x" * 1000)
    member = await cluster.member(consumed(gated), cache_bytes=200_000).start()
    await asyncio.sleep(8)
    held = sum(each.unfinished for each in member.consumer.snapshot().queues)
    # At most one pull per queue is under way when the limit is reached.
    assert held <= 200 + 8 * 32
    gated.gate.set()
    await eventually(lambda: len(gated.done) == 800)
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_stuck_message_stops_its_queue_at_the_span() -> None:
    cluster = await started()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 1000)
    gate, done = asyncio.Event(), []

    async def handler(message: Message) -> None:
        if message.offset == 0:
            await gate.wait()
        done.append(message.offset)

    member = await cluster.member(consumed(handler), config=ConsumerConfig(queue_max_span=200)).start()
    await asyncio.sleep(10)
    assert 200 <= len(done) <= 200 + 96
    assert "queue_max_span" in member.consumer.snapshot().blocked[queue]
    gate.set()
    await eventually(lambda: len(done) == 1000)
    await member.stop()
    await cluster.stop()


# Handlers that take their time.


@in_virtual_time
async def test_a_very_slow_handler_is_told_twice_and_not_run_twice() -> None:
    cluster, gated = await started(), Gated()
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"slow", UNIQ_KEY="id-1")
    member = await cluster.member(consumed(gated, handler_name="app:slow")).start()
    await asyncio.sleep(3000)
    event, again = member.events.of(HandlerSlow)
    assert isinstance(event, HandlerSlow)
    assert isinstance(again, HandlerSlow)
    assert (event.handler, event.message_id) == ("app:slow", "id-1")
    assert 900 <= event.seconds <= 911
    assert 1800 <= again.seconds <= 1811
    reason = member.consumer.snapshot().blocked[queue]
    assert reason.startswith("handler app:slow has been running for 29")
    assert " on topic id-1 at seen.py:" in reason
    assert gated == [b"slow"]
    gated.gate.set()
    assert await member.stop()
    assert cluster.committed(queue) == 1
    await cluster.stop()


# FailurePauses.


@in_virtual_time
async def test_idle_means_that_everything_there_is_has_been_committed() -> None:
    cluster, gated = await started(), Gated()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 3)
    member = await cluster.member(consumed(gated), consumed(Seen(), topic="not there yet")).start()
    await eventually(lambda: len(gated) == 3)
    assert (await member.consumer.idle()).reasons == (f"{queue}: 3 messages are unfinished",)
    gated.gate.set()
    await asyncio.sleep(0.5)
    report = await member.consumer.idle()
    assert not report.reasons
    assert report.owned == report.wanted == {queue, MessageQueue("%RETRY%group", "broker-a", 0)}
    assert cluster.committed(queue) == 3
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_not_idle_while_a_queue_cannot_be_asked_how_far_it_reaches() -> None:
    cluster = await started()
    cluster.create("topic")
    member = await cluster.member(consumed(Seen())).start()
    await asyncio.sleep(1)
    cluster.refuse(RequestCode.GET_MAX_OFFSET)
    assert (await member.consumer.idle()).reasons
    cluster.behave()
    assert not (await member.consumer.idle()).reasons
    await member.stop()
    await cluster.stop()
