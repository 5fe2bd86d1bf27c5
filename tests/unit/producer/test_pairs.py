"""What one way of sending does to another: stops, cancellations and silent brokers beside gathering and traces."""

from __future__ import annotations

import asyncio

from rocketapp.errors import SendRefused
from rocketapp.model.event import LoopFailed
from rocketapp.model.outgoing import Outgoing
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.trace import TRACE_TOPIC
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, Events, in_virtual_time, outcome, refuse

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


@in_virtual_time
async def test_a_send_that_outlives_its_producer_leaves_no_probe_behind() -> None:
    cluster = Cluster()
    async with producing(cluster, send_timeout=30.0) as producer:
        await producer.send(Outgoing(topic="t", body=b"0"))
        cluster.network.hold(cluster.brokers[0].address)
        late = asyncio.ensure_future(producer.send(Outgoing(topic="t", body=b"1")))
        await asyncio.sleep(0.1)
        await producer.stop()
        cluster.network.cut(cluster.brokers[0].address)
        assert await outcome(late)
        assert [task for task in asyncio.all_tasks() if "probe" in task.get_name()] == []


@in_virtual_time
async def test_publishes_that_give_up_as_their_answer_comes_do_not_end_the_message_trace() -> None:
    cluster, events, loop = Cluster(), Events(), asyncio.get_running_loop()
    cluster.add_topic(TRACE_TOPIC)
    broker = cluster.brokers[0]
    async with producing(cluster, events, gather=0.01, trace_topic=TRACE_TOPIC) as producer:
        sends: list[asyncio.Task[object]] = []

        def answer(command: Command) -> Command:
            give_up(turns)
            return broker.store(command)

        def give_up(turns: int) -> None:
            if turns:
                loop.call_soon(give_up, turns - 1)
            for each in sends if not turns else ():
                each.cancel()

        for turns in range(12):  # noqa: B007 - turns of the loop, from the broker's answer on
            broker.answers[BATCH] = answer
            sends[:] = [asyncio.ensure_future(producer.send(Outgoing(topic="t", body=b"%d" % n))) for n in range(3)]
            await asyncio.gather(*sends, return_exceptions=True)
            await asyncio.sleep(1.0)
        assert [event for event in events if "ZeroDivision" in str(event)] == []


@in_virtual_time
async def test_a_publish_for_a_queue_whose_broker_is_slow_has_half_of_its_time_at_least() -> None:
    cluster = Cluster()
    broker = cluster.brokers[0]
    loop = asyncio.get_running_loop()
    async with producing(cluster, gather=0.01, send_timeout=3.0) as producer:
        await producer.send(Outgoing(topic="t", body=b"0"))
        broker.answers[SEND] = broker.answers[BATCH] = lambda _: None  # it is silent

        async def publish(number: int) -> float:
            began = loop.time()
            error = await outcome(producer.send(Outgoing(topic="t", body=b"%d" % number, order_key="k")))
            assert error is not None
            return loop.time() - began

        publishes = []
        for number in range(1, 40):
            publishes.append(asyncio.ensure_future(publish(number)))
            await asyncio.sleep(0.1)
        took = await asyncio.gather(*publishes)
        assert min(took) >= 1.4 and max(took) <= 3.1


@in_virtual_time
async def test_a_gathered_request_that_fails_is_told_to_its_publishes_and_is_no_trouble_of_a_loop() -> None:
    cluster, events = Cluster(), Events()
    cluster.brokers[0].answers[SEND] = cluster.brokers[0].answers[BATCH] = refuse(13, "illegal")
    async with producing(cluster, events, gather=0.01) as producer:
        error = await outcome(producer.send(Outgoing(topic="t", body=b"0", order_key="k")))
        assert isinstance(error, SendRefused)
        assert events.of(LoopFailed) == []
