"""Who asks to be told that a pop would find something."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.broker import request_dispatch
from rocketapp.model.pulled import Acks
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.offsets import CommitRequest
from rocketapp.wire.requests.pop import PopRequest, encode_acks
from tests.unit.broker.asking import Client, running
from tests.unit.broker.test_pop import member, popped, texts
from tests.unit.broker.test_retention import KEPT, OPTIONS, fill
from tests.unit.scripted import in_virtual_time

PLACE = {"consumerGroup": "billing", "topic": "orders", "queueId": "-1"}


def pop(client: Client, poll_ms: int = 0) -> asyncio.Future[object]:
    request = PopRequest(
        group="billing", topic="orders", queue_id=-1, max_messages=1, invisible_ms=9000, poll_ms=poll_ms
    )
    return asyncio.ensure_future(client.ask(RequestCode.POP_MESSAGE, request.to_fields()))


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
async def test_a_queue_is_free_in_order_though_another_acknowledgement_of_the_batch_is_illegal() -> None:
    async with running() as broker:
        one = await member(broker)
        for queue_id in (0, 0, 1, 1):
            await one.client.send("orders", queue_id=queue_id)
        first, second = [(await one.pop(max_messages=1, order=True, queue_id=at))[0].handle for at in (0, 1)]
        waiting = one.ask(order=True, poll=60.0, queue_id=0)
        await asyncio.sleep(0.1)
        body = encode_acks("billing", "orders", "broker-a", [Acks(first, [0]), Acks(second, [1])])
        answer = await one.client.ask(RequestCode.BATCH_ACK_MESSAGE, {}, body)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        await asyncio.sleep(0.1)
        assert [each.handle.offset for each in popped(waiting.result())] == [1]


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
                looked = await client.pull("orders")
                assert looked.code == ResponseCode.SYSTEM_ERROR
                assert "bytes, limit 100: ask for less at once" in (looked.remark or "")

    story()


@in_virtual_time
async def test_in_order_a_pop_that_waits_is_answered_when_the_first_of_the_hidden_queues_is_free() -> None:
    async with running() as broker:
        one = await member(broker)
        for queue_id in range(2):
            await one.client.send("orders", b"%d" % queue_id, queue_id=queue_id)
        for hidden in await one.pop(order=True):
            await one.hide(hidden, 20.0 if hidden.message.queue_id else 40.0)
        waiting = one.ask(order=True, poll=60.0)
        await asyncio.sleep(19.9)
        assert not waiting.done()
        await asyncio.sleep(0.2)
        assert texts(popped(waiting.result())) == ["1"]
