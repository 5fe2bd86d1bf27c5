"""Failed messages that are handed back."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.record import Message
from rocketapp.wire.requests.routes import decode_route
from rocketapp.wire.requests.send_back import SendBackRequest
from tests.unit.broker.asking import Client, running
from tests.unit.scripted import in_virtual_time


async def hand_back(client: Client, message: Message, *, level: int = 0, most: int | None = 16) -> int:
    request = SendBackRequest(message.physical_offset, "billing", level, max_reconsume_times=most)
    return (await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, request.to_fields())).code


@in_virtual_time
async def test_a_message_comes_back_with_everything_it_had_and_its_count_raised() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders", b"x", "KEYS\x01k\x02TAGS\x01paid\x02UNIQ_KEY\x01A1\x02", born_ms=17, flag=5)
        (first,) = await client.messages("orders")
        began = broker.loop.time()
        assert await hand_back(client, first) == ResponseCode.SUCCESS
        assert (await client.pull("%RETRY%billing", suspend_ms=60_000)).code == ResponseCode.SUCCESS
        assert 10.0 <= broker.loop.time() - began <= 10.05
        (again,) = await client.messages("%RETRY%billing")
        assert (again.body, again.tag, again.keys, again.message_id) == (b"x", "paid", ["k"], "A1")
        assert (again.attempt, again.born_ms, again.flag, again.topic) == (2, 17, 5, "orders")
        assert again.properties["ORIGIN_MESSAGE_ID"] == first.offset_message_id
        assert again.properties["RETRY_TOPIC"] == "orders"
        assert again.properties["WAIT"] == "false"


@in_virtual_time
async def test_each_attempt_waits_longer_and_the_first_origin_stays() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        (message,) = await client.messages("orders")
        origin = message.offset_message_id
        waits = []
        for attempt in range(3):
            began = broker.loop.time()
            await hand_back(client, message)
            await client.pull("%RETRY%billing", attempt, suspend_ms=600_000)
            waits.append(round(broker.loop.time() - began))
            (message,) = await client.messages("%RETRY%billing", attempt)
            assert message.properties["ORIGIN_MESSAGE_ID"] == origin
            assert message.topic == "orders"
        assert waits == [10, 30, 60]


@pytest.mark.parametrize(
    ("times", "topic", "found"), [(2**31 - 1, "%DLQ%billing", 2**31 - 1), (-(2**31), "%RETRY%billing", 1 - 2**31)]
)
@in_virtual_time
async def test_whatever_count_of_failures_a_message_was_sent_with_it_is_handed_back(
    times: int, topic: str, found: int
) -> None:
    """As in Apache RocketMQ one with a negative count comes again at once."""
    async with running() as broker:
        client = await broker.client()
        await client.send("orders", queue_id=0, reconsume_times=times)
        (message,) = await client.messages("orders")
        assert await hand_back(client, message) == ResponseCode.SUCCESS
        (again,) = await client.messages(topic)
        assert again.reconsume_times == found


@pytest.mark.parametrize(("level", "most"), [(-1, 16), (0, 0)])
def test_without_another_attempt_it_goes_to_the_dead_letters_at_once(level: int, most: int) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            await client.send("orders", properties="DELAY\x011\x02")
            await asyncio.sleep(1.1)
            (message,) = await client.messages("orders")
            assert await hand_back(client, message, level=level, most=most) == ResponseCode.SUCCESS
            (dead,) = await client.messages("%DLQ%billing")
            assert (dead.body, dead.attempt, dead.properties["DELAY"]) == (message.body, 2, "0")

    story()


@in_virtual_time
async def test_the_groups_own_maximum_counts_when_the_client_names_none() -> None:
    async with running() as broker:
        client = await broker.client()
        body = b'{"groupName":"billing","retryMaxTimes":1}'
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        await client.send("orders")
        (message,) = await client.messages("orders")
        await hand_back(client, message, level=1, most=None)
        await asyncio.sleep(1.1)
        (message,) = await client.messages("%RETRY%billing")
        await hand_back(client, message, level=1, most=None)
        assert len(await client.messages("%DLQ%billing")) == 1


@in_virtual_time
async def test_what_is_no_message_cannot_be_handed_back() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders", b"y" * 500)
        (message,) = await client.messages("orders")
        for offset in (message.physical_offset + 1, 10**15, -1):
            request = SendBackRequest(offset, "billing")
            answer = await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, request.to_fields())
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == f"look message by offset failed, {offset}"


@in_virtual_time
async def test_a_group_without_retry_queues_drops_what_is_handed_back() -> None:
    async with running() as broker:
        client = await broker.client()
        body = b'{"groupName":"billing","retryQueueNums":0}'
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        await client.send("orders")
        (message,) = await client.messages("orders")
        assert await hand_back(client, message, level=1) == ResponseCode.SUCCESS
        await asyncio.sleep(2)
        assert (await client.pull("%RETRY%billing")).code == ResponseCode.TOPIC_NOT_EXIST


@in_virtual_time
async def test_a_retry_topic_grows_with_the_retry_queues_of_its_group() -> None:
    """A retry in a queue that no route names would be read by nobody."""
    async with running() as broker:
        client = await broker.client()
        await client.heartbeat("billing", "orders")
        change = b'{"groupName":"billing","retryQueueNums":8}'
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, change)
        await client.send("orders", b"x", queue_id=0)
        (first,) = await client.messages("orders")
        for _ in range(40):
            assert await hand_back(client, first) == ResponseCode.SUCCESS
        route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%billing"})
        (queues,) = decode_route(route.body).queues
        assert (queues.read_queues, queues.write_queues) == (8, 8)
        await asyncio.sleep(15)
        found = [len(await client.messages("%RETRY%billing", queue_id=each, max_messages=64)) for each in range(8)]
        assert sum(found) == 40
