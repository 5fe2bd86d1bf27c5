"""With `latency_fault`, brokers that answer slowly or not at all are passed over for a while."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rocketapp.model.outgoing import Outgoing
from rocketapp.producer.producer import Producer
from rocketapp.wire.codes import RequestCode
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, in_virtual_time, refuse

SEND = RequestCode.SEND_MESSAGE_V2


async def brokers_of(producer: Producer, count: int) -> Counter[str]:
    results = [await producer.send(Outgoing(topic="t", body=b"x")) for _ in range(count)]
    return Counter(result.queue.broker_name for result in results)


@pytest.mark.parametrize("passes_over", [True, False])
def test_a_broker_that_refuses_gets_no_further_sends_for_ten_seconds(passes_over: bool) -> None:
    @in_virtual_time
    async def run() -> None:
        cluster = Cluster(brokers=2)
        busy = cluster.brokers[0]
        async with producing(cluster, latency_fault=passes_over) as producer:
            busy.answers[SEND] = refuse(2, "busy")
            assert await brokers_of(producer, 16) == {"broker-b": 16}
            tried = busy.codes().count(SEND)
            assert tried == 1 if passes_over else tried > 4
            busy.answers[SEND] = busy.store
            await asyncio.sleep(10)
            assert (await brokers_of(producer, 16))["broker-a"] >= 7

    run()


@in_virtual_time
async def test_when_all_are_passed_over_all_are_used() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster, latency_fault=True, retries=0) as producer:
        for broker in cluster.brokers:
            broker.answers[SEND] = refuse(2, "busy")
        for _ in range(4):
            with pytest.raises(Exception, match="busy"):
                await producer.send(Outgoing(topic="t", body=b"x"))
        for broker in cluster.brokers:
            broker.answers[SEND] = broker.store
        assert sum((await brokers_of(producer, 8)).values()) == 8


@in_virtual_time
async def test_ordered_messages_keep_their_queue() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster, latency_fault=True) as producer:
        first = await producer.send(Outgoing(topic="t", body=b"x", order_key="k"))
        (slow,) = [broker for broker in cluster.brokers if broker.name == first.queue.broker_name]
        slow.answers[SEND] = refuse(2, "busy")
        with pytest.raises(Exception, match="busy"):
            await producer.send(Outgoing(topic="t", body=b"x", order_key="k"))
        slow.answers[SEND] = slow.store
        again = await producer.send(Outgoing(topic="t", body=b"x", order_key="k"))
        assert again.queue == first.queue
