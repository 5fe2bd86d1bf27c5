"""Members of a broadcast group: each handles everything, and what it has done is its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rocketapp.client.calls.offsets import Committed
from rocketapp.consumer.handler import ConsumedTopic
from rocketapp.consumer.offsets.local import LocalOffsets
from rocketapp.errors import SetupError
from rocketapp.model.event import DeadLettered, Dropped, Retried
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.snapshot import HandlerStats
from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, Member, consumed
from tests.unit.scripted import eventually, in_virtual_time


class Seen(list[bytes]):
    """A handler that remembers bodies, and fails on some as often as told."""

    def __init__(self, **failures: int) -> None:
        super().__init__()
        self.failures = failures

    async def __call__(self, message: Message) -> None:
        self.append(message.body)
        if self.failures.get(message.text(), 0) > 0:
            self.failures[message.text()] -= 1
            raise ValueError("no")


def broadcast(call: Any, **options: Any) -> ConsumedTopic:
    return replace(consumed(call, **{"retries": 0, **options}), broadcast=True)


async def started(*, queues: int = 4, messages: int = 10, brokers: int = 1) -> FakeCluster:
    cluster = FakeCluster(brokers=brokers)
    await cluster.start()
    for queue in cluster.create("topic", queues):
        cluster.send_many(queue, messages)
    return cluster


def dropped(member: Member) -> list[Dropped]:
    return [event for event in member.events if isinstance(event, Dropped)]


@in_virtual_time
async def test_each_member_handles_every_message_also_one_that_comes_late() -> None:
    cluster, first, second = await started(brokers=2), Seen(), Seen()
    members = [await cluster.member(broadcast(first)).start()]
    await eventually(lambda: len(first) == 80)
    # The broker keeps one subscription for the group, which may be that of another member.
    assert {pull.fields.get("subscription") for pull in cluster.requests(RequestCode.PULL_MESSAGE)} == {"*"}
    members.append(await cluster.member(broadcast(second)).start())
    await eventually(lambda: len(second) == 80)
    for queue in cluster.create("topic", 4):
        cluster.send(queue, b"late")
    await eventually(lambda: first.count(b"late") == second.count(b"late") == 8)
    await asyncio.sleep(60)
    assert [member.consumer.snapshot().members for member in members] == [2, 2]
    assert [await member.stop() for member in members] == [True, True]
    assert len(first) == len(second) == 88
    await cluster.stop()


@in_virtual_time
async def test_brokers_hear_that_it_is_broadcast_and_of_no_offset_retry_or_lock() -> None:
    cluster, seen = await started(), Seen(**{"3": 1})
    member = await cluster.member(broadcast(seen, orderly=True)).start()
    await eventually(lambda: len(seen) == 40)
    (beat,) = cluster.brokers["broker-a"].members.values()
    (data,) = beat.consumers
    assert data.message_model == "BROADCASTING"
    assert [each.topic for each in data.subscriptions] == ["topic"]
    await asyncio.sleep(30)
    await member.stop()
    asked = {each.code for each in cluster.asked}
    forbidden = {
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.QUERY_CONSUMER_OFFSET,
        RequestCode.LOCK_BATCH_MQ,
        RequestCode.CONSUMER_SEND_MSG_BACK,
    }
    assert not asked & forbidden
    assert cluster.commits == []  # not with the pulls either
    await cluster.stop()


@in_virtual_time
async def test_a_failed_message_is_dropped_told_once_and_counted() -> None:
    cluster, seen = await started(queues=1), Seen(**{"3": 99})
    member = await cluster.member(broadcast(seen)).start()
    await eventually(lambda: len(seen) == 10)
    await asyncio.sleep(60)
    assert member.consumer.counters == HandlerStats(handled=9, dropped=1)
    (one,) = dropped(member)
    assert (one.attempt, one.reason.startswith("ValueError: no")) == (1, True)
    assert isinstance(one.error, ValueError)
    assert (await member.consumer.idle()).reasons == ()
    assert await member.stop()
    assert "%DLQ%group" not in cluster.topics
    await cluster.stop()


@pytest.mark.parametrize("order", [{"orderly": True}, {"order_by": lambda message: None}], ids=["queue", "key"])
def test_in_order_a_failed_message_is_tried_again_in_place_before_it_is_dropped(order: dict[str, Any]) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster, seen = await started(queues=1, messages=5), Seen(**{"1": 1, "3": 99})
        member = await cluster.member(broadcast(seen, retries=2, **order)).start()
        await eventually(lambda: member.consumer.counters.handled == 4, 20)
        assert seen == [b"0", b"1", b"1", b"2", b"3", b"3", b"3", b"4"]
        assert member.consumer.counters == HandlerStats(handled=4, retried=3, dropped=1)
        assert [one.attempt for one in dropped(member)] == [3]
        assert len(list(member.events.of(Retried))) == 3
        assert not list(member.events.of(DeadLettered))
        assert await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_it_is_idle_when_its_own_offsets_are_at_the_end() -> None:
    cluster, gate = await started(queues=2, messages=3), asyncio.Event()

    async def wait(message: Message) -> None:
        await gate.wait()

    member = await cluster.member(broadcast(wait)).start()
    await asyncio.sleep(1)
    assert "unfinished" in " ".join((await member.consumer.idle()).reasons)
    gate.set()
    await asyncio.sleep(0.1)
    assert (await member.consumer.idle()).reasons == ()
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_what_was_done_while_a_broker_is_away_is_not_done_again() -> None:
    cluster, seen = await started(queues=2), Seen()
    member = await cluster.member(broadcast(seen)).start()
    await eventually(lambda: len(seen) == 20)
    await cluster.brokers["broker-a"].listener.close()
    await asyncio.sleep(5)
    assert [each.committed for each in member.consumer.snapshot().queues] == [10, 10]
    assert await member.stop()
    await cluster.stop()


@in_virtual_time
async def test_an_offset_that_the_broker_refuses_is_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, seen = await started(queues=1), Seen()
    (queue,) = cluster.create("topic", 1)

    known = LocalOffsets.committed_for_start

    async def committed(store: LocalOffsets, queue: MessageQueue) -> Committed:
        found = await known(store, queue)
        return Committed(1000, is_certain=True) if found.offset is None else found

    monkeypatch.setattr(LocalOffsets, "committed_for_start", committed)
    member = await cluster.member(broadcast(seen, start="last")).start()
    await asyncio.sleep(5)
    cluster.send(queue, b"new")
    await eventually(lambda: len(seen) > 0)
    await member.stop()
    assert seen == [b"new"]
    await cluster.stop()


@in_virtual_time
async def test_a_member_that_an_operator_moves_goes_on_there() -> None:
    cluster, seen = await started(queues=1), Seen()
    (queue,) = cluster.create("topic", 1)
    member = await cluster.member(broadcast(seen)).start()
    await eventually(lambda: len(seen) == 10)
    member.consumer.move({queue: 7})
    await eventually(lambda: len(seen) == 13)
    await asyncio.sleep(6)
    assert [each.committed for each in member.consumer.snapshot().queues] == [10]
    assert await member.stop()
    assert seen[10:] == [b"7", b"8", b"9"]
    await cluster.stop()


@in_virtual_time
async def test_with_several_workers_none_waits_for_the_others() -> None:
    cluster, seen = await started(), Seen()
    member = await cluster.member(broadcast(seen), expected_members=4).start()
    await eventually(lambda: len(seen) == 40, 1)
    assert await member.stop()
    await cluster.stop()


def with_sql(call: Any) -> ConsumedTopic:
    return replace(consumed(call), data=SubscriptionData("topic", "a > 5", frozenset(), 0, "SQL92"))


@pytest.mark.parametrize(
    ("code", "remark", "mend"),
    [
        (ResponseCode.SYSTEM_ERROR, "The broker does not support SQL92", "set enablePropertyFilter=true there"),
        (ResponseCode.SUBSCRIPTION_PARSE_FAILED, "Encountered ...", "correct it"),
    ],
)
def test_a_filter_that_a_broker_refuses_stops_the_start(code: ResponseCode, remark: str, mend: str) -> None:
    @in_virtual_time
    async def story() -> None:
        cluster = await started()
        cluster.misbehave[RequestCode.CHECK_CLIENT_CONFIG] = lambda _: Command(code, remark=remark)
        member = cluster.member(with_sql(Seen()))
        await member.client.start()
        with pytest.raises(SetupError) as caught:
            await member.consumer.join()
        assert caught.value.place == "app.py:1"
        assert f"sql='a > 5' of topic 'topic': broker broker-a refuses it: {remark}: {mend}" in str(caught.value)
        await member.stop()
        await cluster.stop()

    story()


@in_virtual_time
async def test_a_filter_that_a_cluster_refuses_stops_the_start_also_before_the_topic_exists() -> None:
    cluster = FakeCluster()
    await cluster.start()
    cluster.create("%RETRY%group")
    cluster.misbehave[RequestCode.CHECK_CLIENT_CONFIG] = lambda _: Command(1, remark="does not support SQL92")
    member = cluster.member(with_sql(Seen()))
    with pytest.raises(SetupError, match="broker broker-a refuses it: does not support SQL92"):
        await member.start()
    await member.client.stop()


@in_virtual_time
async def test_a_filter_that_a_broker_takes_is_sent_with_heartbeats_and_pulls() -> None:
    cluster, seen = await started(), Seen()
    cluster.misbehave[RequestCode.CHECK_CLIENT_CONFIG] = lambda _: Command(0)
    member = await cluster.member(with_sql(seen)).start()
    await eventually(lambda: len(seen) == 40)
    (beat,) = cluster.brokers["broker-a"].members.values()
    (data,) = [each for each in beat.consumers[0].subscriptions if each.topic == "topic"]
    assert (data.expression, data.expression_type, data.tags) == ("a > 5", "SQL92", frozenset())
    pulls = cluster.requests(RequestCode.PULL_MESSAGE, topic="topic")
    assert {pull.fields["expressionType"] for pull in pulls} == {"SQL92"}
    await member.stop()
    await cluster.stop()
