"""A topic that is deleted and made again, and the broker that is killed soon after: nothing of the old one counts."""

from __future__ import annotations

import asyncio

from rocketapp.wire.codes import RequestCode, ResponseCode
from tests.unit.broker.asking import Client, running
from tests.unit.broker.test_pop import Member, texts
from tests.unit.broker.test_resets import commit, committed
from tests.unit.scripted import in_virtual_time


async def delete(client: Client) -> None:
    assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_a_group_reads_all_of_the_new_topic_though_its_offset_in_the_old_one_was_saved_last() -> None:
    async with running() as broker:
        client = await broker.client()
        for _ in range(5):
            await client.send("orders", queue_id=0)
        await commit(client, 5)
        await asyncio.sleep(11)  # offsets are saved every 5 s
        await delete(client)
        for _ in range(3):
            await client.send("orders", queue_id=0)
        await broker.restart(killed=True)
        assert await committed(await broker.client()) == 0


@in_virtual_time
async def test_a_queue_that_was_popped_in_order_is_free_in_the_new_topic() -> None:
    async with running() as broker:
        one = Member(await broker.client())
        for _ in range(5):
            await one.client.send("orders", queue_id=0)
        assert len(await one.pop(order=True, invisible_ms=300_000)) == 5
        await asyncio.sleep(11)
        await delete(one.client)
        await one.client.send("orders", b"new", queue_id=0)
        await broker.restart(killed=True)
        one = Member(await broker.client())
        assert texts(await one.pop(order=True)) == ["new"]


@in_virtual_time
async def test_what_was_popped_in_order_stays_hidden_though_no_offset_changed_since_it_came() -> None:
    async with running() as broker:
        one = Member(await broker.client())
        await one.client.send("orders", b"first", queue_id=0)
        (first,) = await one.pop(order=True, invisible_ms=300_000)
        await one.ack(first)
        await asyncio.sleep(11)
        await one.client.send("orders", b"second", queue_id=0)
        assert texts(await one.pop(order=True, invisible_ms=300_000)) == ["second"]
        await asyncio.sleep(11)
        await broker.restart(killed=True)
        assert await Member(await broker.client()).pop(order=True) == []
