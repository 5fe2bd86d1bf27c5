"""Where a queue is read from: at a start, and when the broker has lost messages or is another one."""

from __future__ import annotations

import asyncio
import gc
import zlib
from datetime import UTC, datetime
from typing import Any

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.consumer.handler import messages_of
from rocketapp.model.event import LoopFailed, QueueBlocked
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.compression import COMPRESSED
from rocketapp.wire.layout import INNER_BATCH, NEED_UNWRAP, Record, encode_record
from rocketapp.wire.record import CompressedMessage, Message
from rocketapp.wire.requests.pull import PullRequest, PullResponse
from rocketapp.wire.requests.reset_offset import encode_reset
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.consumer.seen import Gated, Seen, started
from tests.unit.scripted import eventually, in_virtual_time


def replaced(
    cluster: FakeCluster, queue: MessageQueue, count: int, *, keeps_offsets: bool = True, is_cut: bool = True
) -> list[bytes]:
    """An empty broker takes the place of the one there, and gets so many messages; the first one has another tag."""
    if is_cut:
        cluster.network.cut(cluster.brokers["broker-a"].address)
        cluster.held.clear()
    cluster.log[queue].clear()
    if not keeps_offsets:
        cluster.offsets.clear()
    bodies = [b"new %d of %d" % (number, count) for number in range(count)]
    for body in bodies:
        cluster.send(queue, body, TAGS="wanted" if body != bodies[0] else "other")
    return bodies


async def replaced_and_reset(cluster: FakeCluster, queue: MessageQueue, count: int, *, to: int) -> list[bytes]:
    """The same, and an operator sends the member to this offset when it is connected again."""
    members = cluster.brokers["broker-a"].members
    before = set(members)
    fresh = replaced(cluster, queue, count)
    await eventually(lambda: bool(set(members) - before), 60)
    fields = {"topic": "topic", "group": "group", "timestamp": "0"}
    (connection,) = set(members) - before
    connection.send_one_way(Command(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, fields, encode_reset({queue: to})))
    return fresh


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


@pytest.mark.parametrize("how", [{"concurrency": 1}, {"orderly": True}, {"order_by": "key"}, {"batch": 1}])
def test_what_was_pulled_is_handled_although_its_broker_has_deleted_it_since(how: dict[str, Any]) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(), list[bytes]()
        (queue,) = cluster.create("topic")
        cluster.send_many(queue, 200)

        async def handler(item: Any) -> None:
            seen.extend(message.body for message in messages_of(item))
            await asyncio.sleep(1)

        config = ConsumerConfig(subscription_check="off", queue_max_messages=64)
        member = await cluster.member(consumed(handler, **{"concurrency": 1, **how}), config=config).start()
        await asyncio.sleep(5)
        cluster.first[queue] = 150
        await eventually(lambda: cluster.committed(queue) == 200, 300)
        assert seen == [b"%d" % number for number in (*range(96), *range(150, 200))]
        told = "offset 96 is below the broker's first 150: 54 were deleted unread"
        assert [event.error for event in member.events.of(LoopFailed)] == [told]  # type: ignore[attr-defined]
        assert await member.stop()
        await cluster.stop()

    story()


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
        fresh = replaced(cluster, queue, 20, keeps_offsets=keeps_offsets, is_cut=False)
        await eventually(lambda: sorted(seen[before:]) == sorted(fresh), 30)
        failures = [event.error for event in member.events.of(LoopFailed)]  # type: ignore[attr-defined]
        assert "its records are others: 20 are read, from its first offset on" in failures[0]
        assert [one.corrected for one in member.consumer.snapshot().queues if one.queue == queue] == [failures[0]]
        await member.stop()
        await cluster.stop()

    story()


@pytest.mark.parametrize("options", [{"orderly": True}, {"order_by": "k"}], ids=["orderly", "keyed"])
@pytest.mark.parametrize("how", ["it fails", "its lock is lost"])
def test_a_message_of_an_empty_broker_has_all_attempts_although_one_of_its_offset_has_failed(
    how: str, options: dict[str, Any]
) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = await started()
        (queue,) = cluster.create("topic")
        cluster.send_many(queue, 4, k="k")
        calls, fresh = list[tuple[bytes, int]](), list[bytes]()

        async def handler(message: Message) -> None:
            calls.append((message.body, message.attempt))
            if message.body != b"2":
                return
            if "lock" in how:
                cluster.loop.stand_still(70)  # type: ignore[attr-defined]
            if "lock" in how or message.attempt == 3:
                fresh.extend(replaced(cluster, queue, 6, keeps_offsets=False))
            raise ValueError("no")

        retries = 0 if "lock" in how else 4
        member = await cluster.member(consumed(handler, start="first", retries=retries, **options)).start()
        await eventually(lambda: bool(fresh) and cluster.committed(queue) == 6, 100)
        assert cluster.bodies("%DLQ%group") == []
        assert [call for call in calls if call[0] in fresh] == [(body, 1) for body in fresh]
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
        fresh = replaced(cluster, queue, count, keeps_offsets=keeps_offsets)
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
        fresh = replaced(cluster, queue, count)
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
        fresh = replaced(cluster, queue, 45, keeps_offsets=False)
        await eventually(lambda: cluster.committed(queue) == 0, 60)
        assert len(seen) == 30
        assert await member.stop()
        member = await cluster.member(consumed(seen, orderly=orderly)).start()
        await eventually(lambda: sorted(seen[30:]) == sorted(fresh), 60)
        assert await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_an_operators_offset_holds_in_the_queue_of_an_empty_broker_too() -> None:
    cluster, seen = await started(), Seen()
    (queue,) = cluster.create("topic")
    member = await cluster.member(consumed(seen)).start()
    await asyncio.sleep(2)
    cluster.send_many(queue, 30)
    await eventually(lambda: cluster.committed(queue) == 30, 20)
    member.consumer.pause("topic", "maintenance")
    fresh = await replaced_and_reset(cluster, queue, 45, to=20)
    await eventually(lambda: cluster.committed(queue) == 20)
    member.consumer.resume("topic")
    await eventually(lambda: cluster.committed(queue) == 45, 60)
    assert sorted(seen[30:]) == sorted(fresh[20:])
    assert await member.stop()
    await cluster.stop()


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


@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
@pytest.mark.parametrize("count", [3, 5, 30], ids=["fewer", "as many", "more"])
@pytest.mark.parametrize("refused", [0, 3], ids=["", "it takes no offset at first"])
def test_what_a_broker_stored_in_the_place_of_a_tail_that_it_lost_is_read_with_a_minute_before(
    count: int, orderly: bool, refused: int
) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(), Seen()
        (queue,) = cluster.create("topic")
        member = await cluster.member(consumed(seen, orderly=orderly)).start()
        await asyncio.sleep(2)
        cluster.send_many(queue, 10)
        await asyncio.sleep(100)
        cluster.send_many(queue, 10)
        await eventually(lambda: cluster.committed(queue) == 20, 20)
        await asyncio.sleep(10)
        cluster.network.cut(cluster.brokers["broker-a"].address)
        cluster.held.clear()
        cluster.refuse(RequestCode.UPDATE_CONSUMER_OFFSET, times=refused)
        del cluster.log[queue][15:]
        fresh = [b"new %d" % number for number in range(count)]
        for body in fresh:
            cluster.send(queue, body)
        await eventually(lambda: cluster.committed(queue) == 15 + count and len(seen) > 20, 60)
        assert sorted(seen[20:]) == sorted([b"10", b"11", b"12", b"13", b"14", *fresh])
        failures = [event.error for event in member.events.of(LoopFailed)]  # type: ignore[attr-defined]
        assert failures == [
            "the broker lost messages before offset 20 and has stored others in their place: "
            f"{5 + count} are read, from 10 on"
        ]
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


@pytest.mark.parametrize("retries", [3, 0], ids=["to be retried", "to be a dead letter"])
@pytest.mark.parametrize("how", ["while it is pulled", "while its topic is paused"])
def test_a_message_that_failed_is_not_sent_back_as_the_one_that_an_empty_broker_has_in_its_place(
    how: str, retries: int
) -> None:
    """A broker looks up what it is sent back by its place in the log."""

    @in_virtual_time
    async def story() -> None:
        cluster, calls = await started(), list[tuple[bytes, int]]()
        (queue,) = cluster.create("topic")
        gate = asyncio.Event()

        async def handler(message: Message) -> None:
            calls.append((message.body, message.attempt))
            if message.body == b"2":
                await gate.wait()
                raise ValueError("no")

        member = await cluster.member(consumed(handler, retries=retries)).start()
        cluster.send_many(queue, 4)
        await eventually(lambda: len(calls) == 4)
        cluster.refuse(RequestCode.SEND_MESSAGE_V2, 14, times=1 if retries == 0 else 0)
        if "paused" in how:
            member.consumer.pause("topic", "maintenance")
        cluster.records.clear()
        fresh = replaced(cluster, queue, 6, keeps_offsets=False)
        gate.set()
        await asyncio.sleep(3)
        member.consumer.resume("topic")
        await asyncio.sleep(40)
        assert sorted(call for call in calls if call[0] in fresh) == [(body, 1) for body in fresh]
        assert [body for body in cluster.bodies("%DLQ%group") if body in fresh] == []
        if "paused" in how:  # otherwise its session may be over before: it is gone with its broker
            assert (b"2", 2) in calls if retries else cluster.bodies("%DLQ%group") == [b"2"]
        await member.stop()
        await cluster.stop()

    story()


@pytest.mark.parametrize("why", ["it has lost its tail", "the group may not pull"])
def test_in_a_group_with_locks_a_message_is_retried_by_a_broker_that_has_it_still(why: str) -> None:
    """Its member may send no copy to be retried, so that a message its broker has not is a dead letter."""

    @in_virtual_time
    async def story() -> None:
        cluster, calls = await started(), list[tuple[bytes, int]]()
        (queue,) = cluster.create("topic")
        cluster.create("stock")
        gate = asyncio.Event()

        async def handler(message: Message) -> None:
            calls.append((message.body, message.attempt))
            if calls[-1] == (b"0", 1):
                await gate.wait()
                raise ValueError("no")

        in_order = consumed(Seen(), topic="stock", orderly=True)
        member = await cluster.member(consumed(handler, retries=3), in_order).start()
        cluster.send(queue, b"0")
        await asyncio.sleep(100)
        cluster.send_many(queue, 2)
        await eventually(lambda: len(calls) == 3)
        await asyncio.sleep(100)
        cluster.network.cut(cluster.brokers["broker-a"].address)
        cluster.held.clear()
        if "tail" in why:
            del cluster.log[queue][2:]
            for body in (b"new", b"newer"):
                cluster.send(queue, body)
        else:
            cluster.refuse(RequestCode.PULL_MESSAGE, ResponseCode.NO_PERMISSION)
        gate.set()
        await asyncio.sleep(20)
        cluster.behave()
        await asyncio.sleep(60)
        assert cluster.bodies("%DLQ%group") == []
        assert (b"0", 2) in calls
        await member.stop()
        await cluster.stop()

    story()


@pytest.mark.parametrize("orderly", [False, True])
def test_an_empty_broker_is_not_begun_with_before_it_is_known_whose_the_queue_is(orderly: bool) -> None:
    """Another member may have begun with it, and gone on: its offset would be lowered."""

    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(), Seen()
        (queue,) = cluster.create("topic")
        cluster.send_many(queue, 30)
        member = await cluster.member(consumed(seen, orderly=orderly)).start()
        await eventually(lambda: cluster.committed(queue) == 30, 20)
        cluster.ignore(RequestCode.LOCK_BATCH_MQ if orderly else RequestCode.GET_CONSUMER_LIST_BY_GROUP)
        fresh = replaced(cluster, queue, 20, keeps_offsets=False)
        cluster.offsets["group", queue] = 15  # of another member
        await asyncio.sleep(30)
        assert cluster.committed(queue) == 15
        cluster.behave()
        await eventually(lambda: sorted(seen[30:]) == sorted(fresh), 30)
        await member.stop()
        await cluster.stop()

    story()


class OfBatches(FakeCluster):
    """A broker that stores three messages in each record, and answers with whole records."""

    def store_three(self, queue: MessageQueue) -> None:
        at = len(self.log[queue])
        items = encode_batch([(b"%d" % number, b"", 0) for number in range(at, at + 3)])
        for _ in range(3):
            self.store(queue, Record(queue.topic, items, sys_flag=NEED_UNWRAP | INNER_BATCH))

    def answered(self, queue: MessageQueue, request: PullRequest, data: SubscriptionData, command: Command) -> Command:
        answer, first = super().answered(queue, request, data, command), request.offset - request.offset % 3
        if answer.body:
            answer.body = b"".join(map(encode_record, self.log[queue][first::3]))
            answer.fields = PullResponse(0, len(self.log[queue]), 0, len(self.log[queue])).to_fields()
        return answer


@in_virtual_time
async def test_a_queue_whose_records_hold_several_messages_is_known_again() -> None:
    cluster, seen = OfBatches(), Seen()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.offsets["group", queue] = 1
    cluster.store_three(queue)
    member = await cluster.member(consumed(seen)).start()
    await eventually(lambda: cluster.committed(queue) == 3, 20)
    await asyncio.sleep(100)
    cluster.network.cut(cluster.brokers["broker-a"].address)
    cluster.held.clear()
    cluster.store_three(queue)
    await eventually(lambda: cluster.committed(queue) == 6, 60)
    assert seen == [b"1", b"2", b"3", b"4", b"5"]
    assert member.events.of(LoopFailed) == []
    await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_what_was_inflated_is_not_kept_for_its_queue_to_be_known_again() -> None:
    cluster, sizes = await started(), list[int]()
    (queue,) = cluster.create("topic")

    async def call(message: Message) -> None:
        sizes.append(len(message.body))

    def inflated() -> int:
        gc.collect()
        return sum(type(one) is CompressedMessage for one in gc.get_objects())

    before, packed = inflated(), zlib.compress(bytes(1 << 20))
    for _ in range(3):
        cluster.store(queue, Record("topic", packed, sys_flag=COMPRESSED))
    member = await cluster.member(consumed(call)).start()
    await eventually(lambda: cluster.committed(queue) == 3, 20)
    assert (sizes, inflated()) == ([1 << 20] * 3, before)
    await member.stop()
    await cluster.stop()
