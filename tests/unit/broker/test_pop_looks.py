"""Looks at what a pop would find: without taking it, to be told of it, and how many wait."""

from __future__ import annotations

import asyncio

from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.pop import PopRequest
from tests.unit.broker.asking import Client, running
from tests.unit.scripted import in_virtual_time

PLACE = {"consumerGroup": "billing", "topic": "orders", "queueId": "-1"}


def pop(client: Client, poll_ms: int = 0) -> asyncio.Future[object]:
    request = PopRequest(
        group="billing", topic="orders", queue_id=-1, max_messages=1, invisible_ms=9000, poll_ms=poll_ms
    )
    return asyncio.ensure_future(client.ask(RequestCode.POP_MESSAGE, request.to_fields()))


@in_virtual_time
async def test_a_look_takes_nothing() -> None:
    async with running() as broker:
        client = await broker.client()
        for body in (b"one", b"two", b"three"):
            await client.send("orders", body, queue_id=0)
        for _ in range(2):
            answer = await client.ask(RequestCode.PEEK_MESSAGE, {**PLACE, "maxMsgNums": "2"})
            assert [message.body for message in decode_records(answer.body, None)] == [b"one", b"two"]
            assert answer.fields is not None
            assert answer.fields["restNum"] == "3"  # as Apache RocketMQ counts it
        await pop(client)
        answer = await client.ask(RequestCode.PEEK_MESSAGE, {**PLACE, "maxMsgNums": "32"})
        assert [message.body for message in decode_records(answer.body, None)] == [b"two", b"three"]
        nothing = await client.ask(RequestCode.PEEK_MESSAGE, {**PLACE, "queueId": "3", "maxMsgNums": "32"})
        assert nothing.code == ResponseCode.PULL_NOT_FOUND


@in_virtual_time
async def test_who_wants_to_be_told_is_told_at_once_or_when_a_message_comes_or_at_the_end() -> None:
    async with running() as broker:
        client, other = await broker.client(), await broker.client("other")
        await client.send("orders", queue_id=0)
        told = await client.ask(RequestCode.NOTIFICATION, {**PLACE, "pollTime": "5000", "bornTime": "0"})
        assert told.fields == {"hasMsg": "true", "pollingFull": "false"}
        await pop(client)
        began = broker.loop.time()
        told = await client.ask(RequestCode.NOTIFICATION, {**PLACE, "pollTime": "5000", "bornTime": "0"})
        assert told.fields == {"hasMsg": "false", "pollingFull": "false"}
        assert broker.loop.time() - began >= 5
        waiting = asyncio.ensure_future(
            client.ask(RequestCode.NOTIFICATION, {**PLACE, "pollTime": "5000", "bornTime": "0"})
        )
        await asyncio.sleep(1)
        await other.send("orders", queue_id=0)
        assert (await waiting).fields == {"hasMsg": "true", "pollingFull": "false"}
        assert broker.loop.time() - began < 7


@in_virtual_time
async def test_it_is_said_how_many_pops_of_a_place_wait() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders", queue_id=0)
        await pop(client)
        waiting = [pop(client, 9000) for _ in range(2)]
        waiting.append(
            asyncio.ensure_future(client.ask(RequestCode.NOTIFICATION, {**PLACE, "pollTime": "9000", "bornTime": "0"}))
        )
        await asyncio.sleep(1)
        assert (await client.ask(RequestCode.POLLING_INFO, PLACE)).fields == {"pollingNum": "2"}
        assert (await client.ask(RequestCode.POLLING_INFO, {**PLACE, "queueId": "0"})).fields == {"pollingNum": "0"}
        assert (await client.ask(RequestCode.POLLING_INFO, {**PLACE, "topic": "no"})).code == 17
        await asyncio.gather(*waiting)
