"""send-back x broker away: a broker whose slave is away for longer than five minutes."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.model.names import dlq_topic
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.scripted import in_virtual_time


@pytest.mark.parametrize("with_order", [False, True])
@in_virtual_time
async def test_a_broker_that_lacks_replicas_for_ten_minutes_turns_no_retry_into_a_dead_letter(with_order: bool) -> None:
    cluster, calls = FakeCluster(), list[float]()
    await cluster.start()
    (queue,) = cluster.create("topic")
    cluster.create("other")
    cluster.send(queue, b"one", UNIQ_KEY="id-1")

    async def handle(message: Message) -> None:
        calls.append(cluster.loop.time())
        if len(calls) < 3:
            raise ValueError("no")

    async def other(_: Message) -> None: ...

    # As AbstractSendMessageProcessor.consumerSendMsgBack and SendMessageProcessor.handlePutMessageResult say it.
    cluster.refuse(RequestCode.CONSUMER_SEND_MSG_BACK, 1, remark="IN_SYNC_REPLICAS_NOT_ENOUGH")
    cluster.refuse(RequestCode.SEND_MESSAGE_V2, 1, remark="in-sync replicas not enough")
    handlers = [consumed(handle)] + ([consumed(other, topic="other", orderly=True)] if with_order else [])
    member = await cluster.member(*handlers).start()
    await asyncio.sleep(600)
    cluster.behave()
    await asyncio.sleep(120)
    assert cluster.bodies(dlq_topic("group")) == [], f"a dead letter after {len(calls)} of 17 attempts"
    assert len(calls) == 3
    await member.stop()
    await cluster.stop()
