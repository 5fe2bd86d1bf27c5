"""A popped topic on two brokers: one that is away, frozen or of another mind keeps nothing from the other."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rocketapp.config.consumer import ConsumerConfig
from rocketapp.model.event import LoopFailed
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from tests.unit.consumer.pop.pop_cluster import PopCluster, popped
from tests.unit.consumer.pop.test_pop import TIMES, Seen, left
from tests.unit.scripted import eventually, in_virtual_time

A, B = MessageQueue("topic", "broker-a", 0), MessageQueue("topic", "broker-b", 0)


class TwoBrokers(PopCluster):
    """Broker B may be frozen, or answer no question about assignments."""

    frozen = False
    does_not_share = False
    not_sharing = Command(ResponseCode.SYSTEM_ERROR, remark="not now")

    def __init__(self) -> None:
        super().__init__(brokers=2)

    def answer(self, name: str, connection: Connection, command: Command) -> Command | None:
        if name == "broker-b" and self.frozen:
            return None
        if name == "broker-b" and self.does_not_share and command.code == RequestCode.QUERY_ASSIGNMENT:
            answer = self.not_sharing
            return Command.response(command, answer.code, remark=answer.remark, body=answer.body)
        return super().answer(name, connection, command)


async def started() -> TwoBrokers:
    cluster = TwoBrokers()
    await cluster.start()
    cluster.create("topic", queues=1)
    return cluster


@pytest.mark.parametrize("how", ["away", "frozen"])
@in_virtual_time
async def test_the_other_broker_goes_on_and_the_first_one_comes_back(how: str) -> None:
    cluster, seen = await started(), Seen()
    member = await cluster.member(popped(seen), config=TIMES).start()
    cluster.send(A, b"a1")
    cluster.send(B, b"b1")
    await eventually(lambda: len(seen) == 2)
    await eventually(lambda: left(cluster) == 0)
    if how == "away":
        address = cluster.brokers["broker-b"].address
        cluster.network.unlisten(address)
        cluster.network.cut(address)
    else:
        cluster.frozen = True
    for number in range(5):
        cluster.send(A, b"a%d" % (number + 2))
        await eventually(lambda count=number: len(seen) == 3 + count, seconds=1.0)
        await asyncio.sleep(15)
    cluster.send(B, b"b2")
    if how == "away":
        await cluster.start_broker("broker-b", 10912)
    cluster.frozen = False
    await eventually(lambda: (b"b2", 1) in seen, seconds=60)
    await eventually(lambda: left(cluster) == 0, seconds=60)
    assert len(seen) == len(set(seen)) == 8
    assert await member.stop()


@in_virtual_time
async def test_a_broker_that_does_not_share_out_keeps_nothing_from_the_other() -> None:
    cluster, seen = await started(), Seen()
    cluster.does_not_share = True
    member = await cluster.member(popped(seen), config=TIMES).start()
    cluster.send(A, b"a")
    cluster.send(B, b"b")
    await eventually(lambda: [body for body, _ in seen] == [b"a"], seconds=20)
    assert "not now" in member.consumer.snapshot().unassigned
    cluster.does_not_share = False
    await eventually(lambda: (b"b", 1) in seen, seconds=60)
    assert await member.stop()


@pytest.mark.parametrize(
    "answer",
    [
        Command(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="what is that"),
        Command(ResponseCode.SYSTEM_ERROR, remark="not now"),
        Command(ResponseCode.SUCCESS, body=b"<html>"),
    ],
)
@in_virtual_time
async def test_a_topic_with_sql_is_popped_where_it_can_be(answer: Command) -> None:
    cluster, seen = await started(), Seen()
    cluster.does_not_share, cluster.not_sharing = True, answer
    cluster.misbehave[RequestCode.CHECK_CLIENT_CONFIG] = lambda _: Command(0)
    topic = replace(popped(seen), data=SubscriptionData("topic", "a > 5", frozenset(), 0, "SQL92"))
    member = await cluster.member(topic, config=TIMES).start()
    cluster.send(A, b"a")
    await eventually(lambda: seen == [(b"a", 1)])
    assert member.consumer.snapshot().unassigned, "what broker B lacks"
    assert await member.stop()


@in_virtual_time
async def test_rounds_of_members_leave_no_task_and_no_message() -> None:
    cluster, seen = await started(), Seen()
    before = len(asyncio.all_tasks())
    config = ConsumerConfig(subscription_check="off", long_poll=1.0)
    tasks = list[int]()
    for number in range(30):
        cluster.send(A, b"%d" % number)
        member = await cluster.member(popped(seen), config=config).start()
        await eventually(lambda count=number: len(seen) == count + 1, seconds=20)
        assert await member.stop()
        assert member.events.of(LoopFailed) == []
        tasks.append(len(asyncio.all_tasks()))
    assert max(tasks) <= before + 2
    assert left(cluster) == 0


@in_virtual_time
async def test_a_broker_that_has_left_the_cluster_is_given_up() -> None:
    cluster, seen = await started(), Seen()
    member = await cluster.member(popped(seen), config=TIMES).start()
    cluster.send(B, b"b")
    await eventually(lambda: (b"b", 1) in seen)
    await eventually(lambda: left(cluster) == 0)
    for brokers in cluster.topics.values():
        brokers.pop("broker-b", None)
    address = cluster.brokers["broker-b"].address
    cluster.network.unlisten(address)
    cluster.network.cut(address)

    def owned() -> set[str]:
        return {one.queue.broker_name for one in member.consumer.snapshot().queues}

    await eventually(lambda: owned() == {"broker-a"}, seconds=120)
    assert member.consumer.snapshot().blocked == {}
    cluster.send(A, b"a")
    await eventually(lambda: (b"a", 1) in seen)
    assert await member.stop()
