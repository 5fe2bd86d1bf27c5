"""Batches of very many messages, and with very many keys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from rocketapp.wire.batch import encode_batch
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.messages import QueryRequest
from rocketapp.wire.requests.send import SendRequest
from tests.unit.broker.asking import Client, running
from tests.unit.scripted import in_virtual_time

Item = tuple[bytes, bytes, int]


def small(count: int) -> list[Item]:
    return [(b"%d" % number, b"UNIQ_KEY\x01ID%d\x02" % number, 0) for number in range(count)]


def send_batch(client: Client, items: Sequence[Item]) -> asyncio.Future[Command]:
    fields = SendRequest("makers", "orders", queue_id=0, batch=True).to_fields()
    batch = Command(RequestCode.SEND_BATCH_MESSAGE, fields, encode_batch(items))
    return client.connection.start_request(batch, timeout=900.0)


async def bodies(client: Client) -> list[bytes]:
    found, at = list[bytes](), 0
    while messages := await client.messages("orders", at, max_messages=1024):
        found += [message.body for message in messages]
        at = messages[-1].offset + 1
    return found


@pytest.mark.parametrize("items", [[(b"x", b"", 0)] * 32_768, [*small(3000), (b"x", b"DELAY\x013\x02", 0)]])
@in_virtual_time
async def test_a_large_batch_that_is_not_taken_is_refused_as_a_whole(items: list[Item]) -> None:
    async with running(segment_bytes=1 << 24) as broker:
        client = await broker.client()
        refused = await send_batch(client, items)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert await bodies(client) == []


@in_virtual_time
async def test_as_many_are_taken_as_a_consumer_of_apache_s_broker_would_see() -> None:
    async with running(segment_bytes=1 << 24) as broker:
        client = await broker.client()
        assert (await send_batch(client, [(b"x", b"", 0)] * 32_767)).code == ResponseCode.SUCCESS
        assert len(await bodies(client)) == 32_767


@in_virtual_time
async def test_the_keys_of_a_batch_with_very_many_are_all_found() -> None:
    async with running(segment_bytes=1 << 24, index_items=1 << 20) as broker:
        client = await broker.client()
        await asyncio.sleep(6)
        keys = [" ".join(f"{number}-{key}" for key in range(1500)) for number in range(10)]
        items = [(b"%d" % number, f"KEYS\x01{each}\x02".encode(), 0) for number, each in enumerate(keys)]
        assert (await send_batch(client, items)).code == ResponseCode.SUCCESS
        for number in (0, 3, 9):
            request = QueryRequest("orders", f"{number}-1499")
            found = await client.ask(RequestCode.QUERY_MESSAGE, request.to_fields())
            assert [message.body for message in decode_records(found.body, None)] == [b"%d" % number]
