"""An operator moves a group: its next pull, held or not, is answered with the new offset."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.offsets import CommitRequest, OffsetResponse, QueryOffsetRequest
from rocketapp.wire.requests.pull import PullResponse
from rocketapp.wire.requests.reset_offset import ResetOffsetRequest, decode_reset
from tests.unit.broker.asking import Client, running
from tests.unit.broker.test_pop import Member, popped, texts
from tests.unit.scripted import in_virtual_time


async def reset(client: Client, topic: str = "orders", group: str = "billing", **more: Any) -> Command:
    request = ResetOffsetRequest(topic, group, **more)
    return await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, request.to_fields())


async def commit(client: Client, offset: int) -> None:
    await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("billing", "orders", 0, offset).to_fields())


async def committed(client: Client) -> int:
    answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryOffsetRequest("billing", "orders", 0).to_fields())
    return OffsetResponse.from_fields(answer.fields).offset


@in_virtual_time
async def test_a_held_pull_of_the_group_is_answered_at_once_and_others_go_on() -> None:
    async with running() as broker:
        client = await broker.client()
        for _ in range(5):
            await client.send("orders", queue_id=0)
        await commit(client, 5)
        ours, others = client.pull("orders", 5), client.pull("orders", 5, group="shipping")
        began = broker.loop.time()
        answer = await reset(client, queue_id=0, offset=2)
        assert decode_reset(answer.body) == {MessageQueue("orders", "broker-a", 0): 2}
        told = await ours
        assert (told.code, told.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert PullResponse.from_fields(told.fields).next_offset == 2
        assert (await others).code == ResponseCode.PULL_NOT_FOUND
        assert broker.loop.time() - began < 1
        assert len(await client.messages("orders", 2)) == 3


@in_virtual_time
async def test_a_commit_of_what_was_done_before_is_ignored_until_the_group_has_heard() -> None:
    async with running() as broker:
        client = await broker.client()
        for _ in range(5):
            await client.send("orders", queue_id=0)
        await commit(client, 4)
        await reset(client, queue_id=0, offset=1)
        await commit(client, 5)
        assert await committed(client) == 1
        assert (await client.pull("orders", 4)).code == ResponseCode.PULL_OFFSET_MOVED
        await commit(client, 3)
        assert await committed(client) == 3


@in_virtual_time
async def test_every_queue_is_set_to_a_time_or_to_its_end() -> None:
    async with running() as broker:
        client = await broker.client()
        for queue_id in (0, 1, 1):
            await client.send("orders", queue_id=queue_id)
        await commit(client, 0)
        for timestamp_ms, wanted in ((-1, [1, 2, 0, 0]), (0, [0, 0, 0, 0])):
            found = decode_reset((await reset(client, timestamp_ms=timestamp_ms)).body)
            assert [offset for _, offset in sorted(found.items())] == wanted


@in_virtual_time
async def test_a_queue_that_is_popped_in_order_is_moved_at_once_though_its_messages_are_hidden() -> None:
    async with running() as broker:
        client = await broker.client()
        member = Member(client)
        for body in (b"a", b"b", b"c"):
            await client.send("orders", body, queue_id=0)
        (before, *_) = await member.pop(order=True)
        held, began = member.ask(order=True, poll=60.0), broker.loop.time()
        await reset(client, queue_id=0, offset=1)
        assert texts(popped(await held)) == ["b", "c"]
        assert broker.loop.time() - began < 1
        await member.ack(before)
        assert await committed(client) == 1


@in_virtual_time
async def test_held_pops_of_the_group_look_at_once_where_it_was_moved_to() -> None:
    async with running() as broker:
        client = await broker.client()
        one = Member(client)
        await client.send("orders", b"a", queue_id=0)
        (first,) = await one.pop()
        await one.ack(first)
        held = one.ask(poll=15)
        await asyncio.sleep(1)
        began = broker.loop.time()
        await reset(client, timestamp_ms=0)
        assert texts(popped(await held)) == ["a"]
        assert broker.loop.time() - began < 1


@pytest.mark.parametrize(
    ("order", "code"),
    [
        ({"topic": "missing"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"group": "missing"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"queue_id": 0, "offset": 9}, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_what_cannot_be_set_is_refused(order: dict[str, Any], code: int) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            await client.send("orders", queue_id=0)
            await commit(client, 0)
            assert (await reset(client, **order)).code == code

    story()
