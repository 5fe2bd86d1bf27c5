"""Silent brokers are passed over until they answer a probe; with `avoid_slow_brokers` slow ones are, for a while."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from rocketapp.model.outgoing import Outgoing
from rocketapp.producer.producer import Producer
from rocketapp.wire.codes import RequestCode
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, in_virtual_time, outcome, refuse

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
        async with producing(cluster, avoid_slow_brokers=passes_over) as producer:
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
    async with producing(cluster, avoid_slow_brokers=True, retries=0) as producer:
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
    async with producing(cluster, avoid_slow_brokers=True) as producer:
        first = await producer.send(Outgoing(topic="t", body=b"x", order_key="k"))
        (slow,) = [broker for broker in cluster.brokers if broker.name == first.queue.broker_name]
        slow.answers[SEND] = refuse(2, "busy")
        with pytest.raises(Exception, match="busy"):
            await producer.send(Outgoing(topic="t", body=b"x", order_key="k"))
        slow.answers[SEND] = slow.store
        again = await producer.send(Outgoing(topic="t", body=b"x", order_key="k"))
        assert again.queue == first.queue


@pytest.mark.parametrize("how", ["frozen", "gone"])
def test_one_silent_broker_of_two_costs_one_caller_at_most_a_fifth_of_its_rate(how: str) -> None:
    @in_virtual_time
    async def run() -> None:
        cluster = Cluster(brokers=2)
        silent = cluster.brokers[0]
        silent.answers[RequestCode.GET_MAX_OFFSET] = refuse(1, "any answer will do")

        async def rate(producer: Producer) -> int:
            """Sends of one caller in 20 s; each is answered after 10 ms."""
            end, count = asyncio.get_running_loop().time() + 20, 0
            while asyncio.get_running_loop().time() < end:
                await asyncio.sleep(0.01)
                await producer.send(Outgoing(topic="t", body=b"x"))
                count += 1
            return count

        async with producing(cluster) as producer:
            healthy = await rate(producer)
            if how == "frozen":
                cluster.network.hold(silent.address)
            else:
                await silent.stop()
            assert await rate(producer) >= 0.8 * healthy
            # An order key has no other broker.
            began = asyncio.get_running_loop().time()
            keys = [str(number) for number in range(8)]
            ends = [outcome(producer.send(Outgoing(topic="t", body=b"x", order_key=key))) for key in keys]
            ended = [one for one in await asyncio.gather(*ends) if one is not None and not hasattr(one, "queue")]
            assert ended and all("leaves it no broker but broker-a" in str(one) for one in ended)
            assert how == "gone" or asyncio.get_running_loop().time() - began >= 3.0
            if how == "frozen":
                cluster.network.release(silent.address)
                await asyncio.sleep(5)
                assert (await brokers_of(producer, 16))["broker-a"] >= 7

    run()
