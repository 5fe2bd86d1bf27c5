"""Batches of very many messages: stored piece by piece, so that others have their turns."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence

import pytest

from rocketapp.broker.processors import send as send_module
from rocketapp.producer.batches import MOST_IN_BATCH
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.messages import QueryRequest
from rocketapp.wire.requests.send import SendRequest, SendResponse
from tests.unit.broker.asking import Client, running
from tests.unit.broker.store.disk import Disk
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


@in_virtual_time
async def test_others_are_served_between_the_pieces_of_a_large_batch_which_is_answered_as_one() -> None:
    async with running() as broker:
        client, other = await broker.client(), await broker.client("other")
        await client.send("orders", b"first", queue_id=0)
        batch = send_batch(client, small(5000))
        assert (await other.send("others", b"x", queue_id=0)).code == ResponseCode.SUCCESS
        assert not batch.done()
        answer = SendResponse.from_fields((await batch).fields)
        assert answer.queue_offset == 1
        assert await bodies(client) == [b"first"] + [b"%d" % number for number in range(5000)]
        ids = answer.message_id.split(",")
        assert len(ids) == 5000
        last = (await client.messages("orders", 5000))[0]
        assert (last.body, last.offset_message_id) == (b"4999", ids[-1])


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
async def test_a_batch_of_which_a_later_piece_fails_is_stored_perhaps() -> None:
    disk, writes = Disk(), list[str]()
    async with running(disk) as broker:  # type: ignore[arg-type]
        client = await broker.client()
        await client.send("orders", b"first", queue_id=0)

        def fill(number: int, name: str, path: str) -> None:
            if name == "write" and path.startswith("commitlog"):
                writes.append(path)
                if len(writes) == 2:
                    raise OSError(errno.ENOSPC, "No space left on device")

        disk.on_call = fill
        assert (await send_batch(client, small(3000))).code == ResponseCode.SYSTEM_ERROR
        disk.on_call = None
        assert await bodies(client) == [b"first"] + [b"%d" % number for number in range(1024)]


@in_virtual_time
async def test_only_so_many_large_batches_wait_for_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_module, "_MOST_LARGE_BYTES", 700_000)
    async with running(segment_bytes=1 << 22) as broker:
        client = await broker.client()
        batches = [send_batch(client, small(1500)) for _ in range(3)]
        codes = [answer.code for answer in await asyncio.gather(*batches)]
        assert codes == [ResponseCode.SUCCESS, ResponseCode.SUCCESS, ResponseCode.SYSTEM_BUSY]
        assert (await send_batch(client, small(1500))).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_batches_of_the_size_that_our_producer_sends_stay_whole_also_when_one_read_brings_many() -> None:
    disk, written = Disk(), list[str]()
    async with running(disk, segment_bytes=1 << 22) as broker:  # type: ignore[arg-type]
        client = await broker.client()
        await client.send("orders", b"first", queue_id=0)
        disk.on_call = lambda number, name, path: written.append(path) if "commitlog" in path else None
        batches = [send_batch(client, small(MOST_IN_BATCH)) for _ in range(10)]
        answers = [SendResponse.from_fields((await batch).fields) for batch in batches]
        assert [answer.queue_offset for answer in answers] == [1 + number * MOST_IN_BATCH for number in range(10)]
        assert len(written) == 10


@in_virtual_time
async def test_large_batches_that_come_at_once_are_stored_one_after_the_other() -> None:
    async with running(segment_bytes=1 << 22) as broker:
        client = await broker.client()
        batches = [send_batch(client, small(2500)) for _ in range(3)]
        answers = [SendResponse.from_fields((await batch).fields) for batch in batches]
        assert [answer.queue_offset for answer in answers] == [0, 2500, 5000]
        assert await bodies(client) == [b"%d" % number for number in range(2500)] * 3


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
