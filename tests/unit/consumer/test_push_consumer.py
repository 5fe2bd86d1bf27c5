"""One member: the way of a message from the pull to the committed offset, and what may go wrong on it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import ConsumedTopic, Handler
from rocketapp.errors import ConfigError, SetupError
from rocketapp.model.event import Assigned, DrainCut, Handled, HandlerSlow, LoopFailed, Moving, QueueBlocked, Unmatched
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.snapshot import HandlerStats
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed, consumed_by, subscription
from tests.unit.scripted import eventually, in_virtual_time


class Seen(list[Any]):
    """A handler that remembers bodies."""

    async def __call__(self, message: Message) -> None:
        self.append(message.body)


class Gated(Seen):
    """A handler that starts with every message and ends when the gate opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = asyncio.Event()
        self.done: list[bytes] = []

    async def __call__(self, message: Message) -> None:
        self.append(message.body)
        await self.gate.wait()
        self.done.append(message.body)


async def started(**options: Any) -> FakeCluster:
    cluster = FakeCluster(**options)
    await cluster.start()
    return cluster


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


@pytest.mark.parametrize(
    ("start", "expected"), [("first", 0), ("last", 3), (datetime.fromtimestamp(1795000005, UTC), 2)]
)
def test_a_group_without_offsets_begins_where_the_rule_says_and_commits_that_at_once(start: Any, expected: int) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(), Seen()
        (queue,) = cluster.create("topic")
        cluster.send_many(queue, 2)
        await asyncio.sleep(10)
        cluster.send_many(queue, 1)
        member = cluster.member(consumed(seen, start=start))
        await member.client.start()
        await member.consumer.join()
        assert cluster.committed(queue) == expected
        # Between the computed position and the first pull: C5.
        cluster.send_many(queue, 1)
        member.consumer.begin()
        await eventually(lambda: seen == [b"0", b"1", b"2", b"3"][expected:])
        await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_of_a_young_queue_a_new_group_reads_from_the_beginning_as_java_does() -> None:
    cluster, seen = await started(), Seen()
    cluster.young = True
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 3)
    member = await cluster.member(consumed(seen, start="last")).start()
    await asyncio.sleep(1)
    assert len(seen) == 3
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_topic_that_appears_later_is_read_from_its_beginning() -> None:
    cluster, seen = await started(), Seen()
    cluster.create("other")
    member = await cluster.member(consumed(seen, start="last"), consumed(Seen(), topic="other")).start()
    await asyncio.sleep(10)
    (queue,) = cluster.create("topic")
    cluster.send(queue, b"created it")
    await asyncio.sleep(40)
    assert seen == [b"created it"]
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_of_an_old_topic_without_a_route_at_the_join_only_what_came_since_is_read() -> None:
    cluster, seen = await started(), Seen()
    cluster.create("other")
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 3)
    await asyncio.sleep(3600)
    route = cluster.topics.pop("topic")
    member = await cluster.member(consumed(seen, start="last"), consumed(Seen(), topic="other")).start()
    cluster.send(queue, b"since")
    await asyncio.sleep(300)
    cluster.topics["topic"] = route
    await eventually(lambda: seen == [b"since"], 40.0)
    assert next(offset for _, at, offset in cluster.commits if at == queue) == 3
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("version", [401, 435])
def test_where_an_old_broker_answers_0_for_none_the_start_is_committed_all_the_same(version: int) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = await started()
        cluster.young, cluster.version = True, version
        (queue,) = cluster.create("topic")
        cluster.send_many(queue, 3)
        member = cluster.member(consumed(Seen(), start="last"))
        await member.client.start()
        await member.consumer.join()
        assert cluster.committed(queue) == 0
        await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_nothing_is_pulled_before_begin() -> None:
    cluster = await started()
    cluster.send_many(cluster.create("topic")[0], 3)
    member = cluster.member(consumed(Seen()))
    await member.client.start()
    await member.consumer.join()
    await asyncio.sleep(30)
    assert not cluster.requests(RequestCode.PULL_MESSAGE)
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("how", ["refuse", "ignore"])
def test_nothing_is_pulled_while_the_committed_offset_cannot_be_read(how: str) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(), Seen()
        (queue,) = cluster.create("topic")
        cluster.send_many(queue, 10)
        cluster.offsets["group", queue] = 4
        getattr(cluster, how)(RequestCode.QUERY_CONSUMER_OFFSET)
        member = await cluster.member(consumed(seen)).start()
        await asyncio.sleep(60)
        assert not cluster.requests(RequestCode.PULL_MESSAGE)
        assert "offset cannot be read" in member.consumer.snapshot().blocked[queue]
        still = [event for event in member.events.of(QueueBlocked) if event.queue == queue]  # type: ignore[attr-defined]
        assert len(still) == 1
        cluster.behave()
        await eventually(lambda: seen == [b"4", b"5", b"6", b"7", b"8", b"9"], 10)
        assert queue not in member.consumer.snapshot().blocked
        await member.stop()
        await cluster.stop()

    story()


# What brokers refuse.


@in_virtual_time
async def test_a_broker_that_lost_its_tail_is_followed_to_its_end_and_never_to_zero() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 10)
    cluster.offsets["group", queue] = 50
    member = await cluster.member(consumed(seen, start="last")).start()
    await eventually(lambda: cluster.committed(queue) == 10)
    await asyncio.sleep(1)
    cluster.send(queue, b"new")
    await eventually(lambda: seen == [b"new"])
    failures = [event.error for event in member.events.of(LoopFailed)]  # type: ignore[attr-defined]
    what = "offset 50 is 40 beyond the broker's end 10"
    assert failures == [f"{what}, and this process has pulled none of its 10: start= says where it begins"]
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_deleted_messages_are_passed_over_with_a_word() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 10)
    cluster.first[queue] = 6
    cluster.offsets["group", queue] = 2
    member = await cluster.member(consumed(seen)).start()
    await eventually(lambda: seen == [b"6", b"7", b"8", b"9"])
    assert any("4 were deleted unread" in event.error for event in member.events.of(LoopFailed))  # type: ignore[attr-defined]
    await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("keeps_offsets", [True, False], ids=["its offsets are kept", "its offsets are gone too"])
@pytest.mark.parametrize("before", [30, 60], ids=["beyond the end", "beyond the end by more"])
def test_a_running_member_reads_an_empty_broker_in_the_place_of_the_old_one_from_its_first_message(
    before: int, keeps_offsets: bool
) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(), Seen()
        (queue,) = cluster.create("topic")
        member = await cluster.member(consumed(seen, start="last")).start()
        await asyncio.sleep(2)
        cluster.send_many(queue, before)
        await eventually(lambda: len(seen) == before)
        await eventually(lambda: cluster.committed(queue) == before, 20)
        cluster.log[queue].clear()
        if not keeps_offsets:
            cluster.offsets.clear()
        fresh = [b"new %d" % number for number in range(20)]
        for body in fresh:
            cluster.send(queue, body)
        await eventually(lambda: sorted(seen[before:]) == sorted(fresh), 30)
        failures = [event.error for event in member.events.of(LoopFailed)]  # type: ignore[attr-defined]
        assert "its records are others: 20 are read, from its first offset on" in failures[0]
        assert [one.corrected for one in member.consumer.snapshot().queues if one.queue == queue] == [failures[0]]
        await member.stop()
        await cluster.stop()

    story()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("keeps_offsets", [True, False], ids=["its offsets are kept", "its offsets are gone too"])
@pytest.mark.parametrize("tags", ["*", "wanted"])
@pytest.mark.parametrize("count", [30, 31, 100], ids=["as many", "one more", "many more"])
def test_an_empty_broker_that_got_more_than_was_handled_before_its_member_is_back_is_read_from_its_first_message(
    count: int, tags: str, keeps_offsets: bool, orderly: bool
) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(), Seen()
        (queue,) = cluster.create("topic")
        member = await cluster.member(consumed(seen, start="last", tags=tags, orderly=orderly)).start()
        await asyncio.sleep(2)
        cluster.send_many(queue, 30, TAGS="wanted")
        await eventually(lambda: len(seen) == 30)
        await eventually(lambda: cluster.committed(queue) == 30, 20)
        cluster.network.cut(cluster.brokers["broker-a"].address)
        cluster.held.clear()
        cluster.log[queue].clear()
        if not keeps_offsets:
            cluster.offsets.clear()
        fresh = [b"new %d" % number for number in range(count)]
        for body in fresh:
            cluster.send(queue, body, TAGS="wanted" if body != fresh[0] else "other")
        expected = fresh if tags == "*" else fresh[1:]
        await eventually(lambda: sorted(seen[30:]) == sorted(expected), 60)
        failures = [event.error for event in member.events.of(LoopFailed)]  # type: ignore[attr-defined]
        assert f"its records are others: {count} are read, from its first offset on" in failures[-1]
        await member.stop()
        assert cluster.committed(queue) == count
        await cluster.stop()

    story()


@in_virtual_time
async def test_an_empty_broker_is_noticed_after_a_pause_and_once_more_after_the_next_one() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    member = await cluster.member(consumed(seen, start="last")).start()
    await asyncio.sleep(2)
    cluster.send_many(queue, 30)
    await eventually(lambda: cluster.committed(queue) == 30, 20)
    for count in (45, 60):
        member.consumer.pause("topic", "maintenance")
        await asyncio.sleep(1)
        before = len(seen)
        cluster.network.cut(cluster.brokers["broker-a"].address)
        cluster.held.clear()
        cluster.log[queue].clear()
        fresh = [b"%d of %d" % (number, count) for number in range(count)]
        for body in fresh:
            cluster.send(queue, body)
        await asyncio.sleep(100)
        assert len(seen) == before
        member.consumer.resume("topic")
        await eventually(lambda expected=fresh, at=before: sorted(seen[at:]) == sorted(expected), 60)
        await eventually(lambda expected=count: cluster.committed(queue) == expected, 20)
    assert await member.stop()
    await cluster.stop()


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
def test_what_a_paused_member_has_done_is_not_committed_into_an_empty_broker_in_the_place_of_its_own(
    orderly: bool,
) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(), Seen()
        (queue,) = cluster.create("topic")
        member = await cluster.member(consumed(seen, orderly=orderly)).start()
        await asyncio.sleep(2)
        cluster.send_many(queue, 30)
        await eventually(lambda: cluster.committed(queue) == 30, 20)
        member.consumer.pause("topic", "maintenance")
        cluster.network.cut(cluster.brokers["broker-a"].address)
        cluster.held.clear()
        cluster.log[queue].clear()
        cluster.offsets.clear()
        fresh = [b"new %d" % number for number in range(45)]
        for body in fresh:
            cluster.send(queue, body)
        await eventually(lambda: cluster.committed(queue) == 0, 60)
        assert len(seen) == 30
        assert await member.stop()
        member = await cluster.member(consumed(seen, orderly=orderly)).start()
        await eventually(lambda: sorted(seen[30:]) == sorted(fresh), 60)
        assert await member.stop()
        await cluster.stop()

    story()


@pytest.mark.parametrize("deleted", [0, 7], ids=["all kept", "the first records are deleted"])
def test_a_reconnected_member_repeats_nothing_of_a_broker_that_lost_its_tail_or_deleted_records(deleted: int) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(), Seen()
        (queue,) = cluster.create("topic")
        member = await cluster.member(consumed(seen, start="last")).start()
        await asyncio.sleep(2)
        cluster.send_many(queue, 10)
        await eventually(lambda: cluster.committed(queue) == 10, 20)
        for kept in (9, 8):
            cluster.network.cut(cluster.brokers["broker-a"].address)
            cluster.held.clear()
            del cluster.log[queue][kept:]
            cluster.first[queue] = deleted
            await eventually(lambda kept=kept: cluster.committed(queue) == kept, 60)
            cluster.send(queue, b"new")
            await eventually(lambda: seen[-1] == b"new", 20)
            await eventually(lambda kept=kept: cluster.committed(queue) == kept + 1, 20)
        assert seen == [*(b"%d" % number for number in range(10)), b"new", b"new"]
        assert await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_queue_is_known_again_once_per_connection() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    member = await cluster.member(consumed(seen, start="last")).start()
    await asyncio.sleep(2)
    cluster.send_many(queue, 10)
    await eventually(lambda: len(seen) == 10)
    for cuts in (1, 2):
        cluster.network.cut(cluster.brokers["broker-a"].address)
        await asyncio.sleep(60)
        asked = [one for one in cluster.requests(RequestCode.PULL_MESSAGE) if one.fields.get("subscription") == "*"]
        assert len(asked) == cuts
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_a_running_member_repeats_nothing_of_a_broker_that_lost_its_tail() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    member = await cluster.member(consumed(seen, start="last")).start()
    await asyncio.sleep(2)
    cluster.send_many(queue, 10)
    await eventually(lambda: len(seen) == 10)
    del cluster.log[queue][5:]
    for wake in cluster.held.pop(queue, []):
        wake()
    await eventually(lambda: cluster.committed(queue) == 5, 20)
    cluster.send(queue, b"new")
    await eventually(lambda: seen[10:] == [b"new"], 20)
    failures = [event.error for event in member.events.of(LoopFailed)]  # type: ignore[attr-defined]
    assert failures == ["offset 10 is 5 beyond the broker's end 5: it lost its tail; 5 offsets are given out again"]
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_what_an_old_session_finishes_after_its_offset_moved_is_not_committed() -> None:
    cluster, gated = await started(), Gated()
    (queue,) = cluster.create("topic")
    cluster.send_many(queue, 10)
    member = await cluster.member(consumed(gated)).start()
    await eventually(lambda: len(gated) == 10)
    del cluster.log[queue][5:]
    for wake in cluster.held.pop(queue):
        wake()
    await eventually(lambda: cluster.committed(queue) == 5)
    gated.gate.set()
    await asyncio.sleep(20)
    assert cluster.committed(queue) == 5
    await member.stop()
    assert cluster.committed(queue) == 5
    await cluster.stop()


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
    assert " on topic id-1 at test_push_consumer.py:" in reason
    assert gated == [b"slow"]
    gated.gate.set()
    assert await member.stop()
    assert cluster.committed(queue) == 1
    await cluster.stop()


# Stopping.


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
