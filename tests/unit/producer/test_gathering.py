"""Gathered publishes share requests; each gets its own result or error, keys keep their order, a stop loses nothing."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.errors import SendRefused, SendUnknown
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.producer.producer import Producer
from rocketapp.wire.batch import decode_batch
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, ScriptedBroker, in_virtual_time, outcome, refuse

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE


def message(number: int, **more: object) -> Outgoing:
    return Outgoing(topic="t", body=b"%d" % number, **more)  # type: ignore[arg-type]


def stored(broker: ScriptedBroker) -> list[tuple[int, list[int]]]:
    """The queue and the numbers of each request that was stored, in order."""
    return [
        (request.queue_id, [int(one) for one, *_ in decode_batch(body)] if request.batch else [int(body)])
        for request, body in broker.stored
    ]


async def now_of(producer: Producer, numbers: range, **more: object) -> list[SendResult]:
    return await asyncio.gather(*(producer.send(message(number, **more)) for number in numbers))


@in_virtual_time
async def test_publishes_of_a_moment_share_a_request_and_each_has_its_own_result() -> None:
    cluster = Cluster()
    async with producing(cluster, gather=0.01) as producer:
        began = asyncio.get_running_loop().time()
        results = await now_of(producer, range(50))
        assert asyncio.get_running_loop().time() - began == pytest.approx(0.01, abs=0.005)
        ((_, numbers),) = stored(cluster.brokers[0])
        assert numbers == list(range(50))
        assert [result.queue_offset - results[0].queue_offset for result in results] == numbers
        assert len({result.message_id for result in results}) == 50


@in_virtual_time
async def test_a_full_pile_does_not_wait_and_a_lonely_message_travels_as_one() -> None:
    cluster = Cluster()
    async with producing(cluster, gather=30.0, gather_bytes=1024) as producer:
        bodies = [b"x" * 600] * 2 + [b"y" * 2000]
        await asyncio.wait_for(
            asyncio.gather(*(producer.send(Outgoing(topic="t", body=body)) for body in bodies[:1] + bodies[2:])), 1.0
        )
        assert [len(body) for request, body in cluster.brokers[0].stored if not request.batch] == [600, 2000]


@in_virtual_time
async def test_what_cannot_share_a_request_does_not_wait() -> None:
    cluster = Cluster()
    async with producing(cluster, gather=30.0) as producer:
        await asyncio.wait_for(producer.send(message(1, delay_level=3)), 1.0)
        await asyncio.wait_for(producer.send_one_way(message(2)), 1.0)
        error = await outcome(asyncio.wait_for(producer.send(message(3, properties={"TAGS": "x"})), 1.0))
        assert isinstance(error, SendRefused) and error.is_permanent


@in_virtual_time
async def test_equal_keys_keep_their_order_also_while_a_request_is_answered_late() -> None:
    cluster = Cluster()
    broker = cluster.brokers[0]
    async with producing(cluster, gather=0.01, send_timeout=10.0) as producer:
        await producer.send(message(0))
        broker.stored.clear()

        def answer_late(command: Command) -> None:
            later = 0.5 / len(broker.asked)  # the second sooner than the first
            asyncio.get_running_loop().call_later(later, lambda: broker.connection().reply(broker.store(command)))

        broker.answers[SEND] = broker.answers[BATCH] = answer_late
        sends = []
        for number in range(1, 41):
            sends.append(asyncio.ensure_future(producer.send(message(number, order_key=f"key{number % 4}"))))
            await asyncio.sleep(0.003)
        await asyncio.gather(*sends)
        for key in range(4):
            mine = [one for _, numbers in stored(broker) for one in numbers if one % 4 == key]
            assert mine == sorted(mine) and len(mine) == 10
        assert len(broker.stored) < 20


@pytest.mark.parametrize(("code", "kind"), [(13, SendRefused), (1, SendUnknown)], ids=["refused", "perhaps stored"])
@in_virtual_time
async def test_a_failure_reaches_every_publish_and_no_other(code: int, kind: type[Exception]) -> None:
    cluster = Cluster()
    broker = cluster.brokers[0]
    async with producing(cluster, gather=0.01, retries=0) as producer:
        broker.answers[BATCH] = refuse(code, "no room")
        failed = await asyncio.gather(*(outcome(producer.send(message(number))) for number in range(5)))
        assert {type(one) for one in failed} == {kind} and len({id(one) for one in failed}) == 5
        assert all("no room" in str(one) for one in failed)
        broker.answers[BATCH] = broker.store
        assert len(await now_of(producer, range(5))) == 5


@in_virtual_time
async def test_a_cancelled_publish_leaves_the_pile_and_the_others_go_on() -> None:
    cluster = Cluster()
    async with producing(cluster, gather=0.01) as producer:
        sends = [asyncio.ensure_future(producer.send(message(number))) for number in range(3)]
        await asyncio.sleep(0.001)
        sends[1].cancel()
        results = await asyncio.gather(*sends, return_exceptions=True)
        assert [isinstance(result, SendResult) for result in results] == [True, False, True]
        assert [numbers for _, numbers in stored(cluster.brokers[0])] == [[0, 2]]


@in_virtual_time
async def test_a_stop_sends_what_waits() -> None:
    cluster = Cluster()
    async with producing(cluster, gather=30.0) as producer:
        sends = [
            asyncio.ensure_future(producer.send(message(number, order_key="k" if number % 2 else None)))
            for number in range(10)
        ]
        await asyncio.sleep(0.1)
        await asyncio.wait_for(producer.stop(), 1.0)
        assert all(isinstance(result, SendResult) for result in await asyncio.gather(*sends))
    assert sorted(one for _, numbers in stored(cluster.brokers[0]) for one in numbers) == list(range(10))


@in_virtual_time
async def test_a_queue_that_answers_nothing_fails_its_publishes_in_time_and_holds_up_no_other() -> None:
    cluster = Cluster(brokers=2)
    async with producing(cluster, gather=0.01, retries=0, send_timeout=2.0) as producer:
        await asyncio.gather(*(producer.send(message(number)) for number in range(4)))
        for answer in (SEND, BATCH):
            del cluster.brokers[0].answers[answer]
        began = asyncio.get_running_loop().time()
        dead, alive = MessageQueue("t", "broker-a", 0), MessageQueue("t", "broker-b", 0)
        first = [asyncio.ensure_future(outcome(producer.send(message(number, queue=dead)))) for number in range(2)]
        await asyncio.sleep(1.0)
        second = [asyncio.ensure_future(outcome(producer.send(message(number, queue=dead)))) for number in range(2)]
        assert (await producer.send(message(9, queue=alive))).queue == alive
        assert asyncio.get_running_loop().time() - began < 1.5
        for sends, end in ((first, 2.0), (second, 3.0)):
            assert all(isinstance(one, SendUnknown | SendRefused) for one in await asyncio.gather(*sends))
            assert asyncio.get_running_loop().time() - began <= end + 0.1


@in_virtual_time
async def test_a_publish_with_less_time_than_gathering_takes_is_sent_in_time() -> None:
    cluster = Cluster()
    async with producing(cluster, gather=30.0, send_timeout=3.0) as producer:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(producer.send(message(1)), producer.send(message(2, order_key="k"), timeout=1.0))
        assert asyncio.get_running_loop().time() - began == pytest.approx(1.5, abs=0.01)
        assert sorted(numbers for _, numbers in stored(cluster.brokers[0])) == [[1], [2]]


@in_virtual_time
async def test_a_publish_waits_for_those_before_it_no_longer_than_its_timeout() -> None:
    cluster = Cluster()
    async with producing(cluster, gather=0.01) as producer:
        broker, now = cluster.brokers[0], asyncio.get_running_loop().time
        store = broker.answers.pop(SEND)
        first = asyncio.ensure_future(producer.send(message(1, order_key="k"), timeout=3.0))
        await asyncio.sleep(0.1)
        began = now()
        error = await outcome(producer.send(message(2, order_key="k"), timeout=0.5))
        assert isinstance(error, SendRefused) and now() - began == pytest.approx(0.5, abs=0.01)
        broker.answers[SEND] = store
        third = producer.send(message(3, order_key="k"), timeout=6.0)
        assert isinstance(await outcome(first), SendUnknown)
        assert isinstance(await third, SendResult)
        assert [numbers for _, numbers in stored(broker)] == [[3]]
