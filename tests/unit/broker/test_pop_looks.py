"""Looks at what a pop would find: without taking it, to be told of it, and how many wait."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.broker import request_dispatch
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.offsets import CommitRequest
from rocketapp.wire.requests.pop import PopRequest
from tests.unit.broker.asking import Client, running
from tests.unit.broker.test_retention import KEPT, OPTIONS, fill
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


@in_virtual_time
async def test_who_wants_to_be_told_of_a_queue_in_order_is_told_when_it_is_free() -> None:
    async with running() as broker:
        client, other = await broker.client(), await broker.client("other")
        await client.send("orders", queue_id=0)
        request = PopRequest("billing", "orders", queue_id=0, max_messages=1, invisible_ms=2000, poll_ms=0, order=True)
        assert (await client.ask(RequestCode.POP_MESSAGE, request.to_fields())).code == ResponseCode.SUCCESS
        began = broker.loop.time()
        question = {**PLACE, "queueId": "0", "pollTime": "15000", "bornTime": "0", "order": "true"}
        told = await other.ask(RequestCode.NOTIFICATION, question)
        assert told.fields == {"hasMsg": "true", "pollingFull": "false"}
        assert 2 <= broker.loop.time() - began < 3


@in_virtual_time
async def test_a_look_begins_at_the_first_message_that_still_exists() -> None:
    async with running(**OPTIONS) as broker:
        client = await broker.client()
        await fill(client, "orders", 5)
        beginning = CommitRequest("billing", "orders", 0, 0)
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, beginning.to_fields())
        await asyncio.sleep(1.2 * KEPT)
        client = await broker.client()
        looked = await client.ask(RequestCode.PEEK_MESSAGE, {**PLACE, "maxMsgNums": "1"})
        assert [message.offset for message in decode_records(looked.body, None)] == [4]
        assert (looked.fields or {})["restNum"] == "1"


@in_virtual_time
async def test_nobody_is_told_of_messages_that_have_expired() -> None:
    async with running(**OPTIONS) as broker:
        client = await broker.client()
        await client.send("orders", queue_id=0)
        beginning = CommitRequest("billing", "orders", 0, 0)
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, beginning.to_fields())
        await fill(client, "bills", 5)
        await asyncio.sleep(1.2 * KEPT)
        client = await broker.client()
        told = await client.ask(RequestCode.NOTIFICATION, {**PLACE, "pollTime": "1000", "bornTime": "0"})
        assert told.fields == {"hasMsg": "false", "pollingFull": "false"}


@in_virtual_time
async def test_a_look_at_large_messages_of_many_queues_brings_no_more_than_a_pop() -> None:
    async with running(topic_queues=20) as broker:
        client = await broker.client()
        for queue in range(20):
            answer = await client.send("orders", bytes(990_000), queue_id=queue, default_queues=20)
            assert answer.code == ResponseCode.SUCCESS
        for _ in range(2):  # the first one waits until its group is written
            looked = await client.ask(RequestCode.PEEK_MESSAGE, {**PLACE, "maxMsgNums": "32"})
            assert (looked.code, len(decode_records(looked.body, None))) == (ResponseCode.SUCCESS, 1)
            assert (looked.fields or {})["restNum"] == "20"


def test_an_answer_that_waits_until_its_group_is_written_is_no_larger_than_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(request_dispatch, "MOST_ANSWER_BYTES", 100)

    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            await client.send("orders", queue_id=0)
            for _ in range(2):
                looked = await client.ask(RequestCode.PEEK_MESSAGE, {**PLACE, "maxMsgNums": "1"})
                assert looked.code == ResponseCode.SYSTEM_ERROR
                assert "bytes, limit 100: ask for less at once" in (looked.remark or "")

    story()
