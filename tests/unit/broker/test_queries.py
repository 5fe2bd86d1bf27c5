"""Messages by their ids and keys."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from rocketapp.broker import indexing
from rocketapp.broker.processors import queries
from rocketapp.broker.store import key_index
from rocketapp.broker.store.files import File, MemoryFiles
from rocketapp.model.event import LoopFailed
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.messages import QueryRequest
from tests.unit.broker.asking import Client, running
from tests.unit.scripted import in_virtual_time


async def send(client: Client, number: int, *, keys: str = "", queue_id: int = 0) -> None:
    properties = {names.UNIQ_KEY: f"ID{number}", **({names.KEYS: keys} if keys else {})}
    await client.send("orders", str(number).encode(), names.encode(properties).decode(), queue_id=queue_id)


async def query(client: Client, key: str, **more: Any) -> Command:
    return await client.ask(RequestCode.QUERY_MESSAGE, QueryRequest("orders", key, **more).to_fields())


def bodies(answer: Command) -> list[bytes]:
    return [message.body for message in decode_records(answer.body, None)]


@in_virtual_time
async def test_a_key_is_found_in_every_queue() -> None:
    async with running() as broker:
        client = await broker.client()
        for number in range(100):
            await send(client, number, keys=f"k{number % 10} all", queue_id=number % 4)
        assert sorted(bodies(await query(client, "k3"))) == sorted(str(number).encode() for number in range(3, 100, 10))
        assert bodies(await query(client, "ID42", unique=True)) == [b"42"]
        assert len(bodies(await query(client, "all"))) == 64
        assert len(bodies(await query(client, "all", most=5))) == 5


@in_virtual_time
async def test_others_have_their_turns_while_many_records_are_read_for_a_key() -> None:
    async def turns(key: str) -> int:
        asked, count = asyncio.ensure_future(query(client, key)), 0
        while not asked.done():
            await asyncio.sleep(0)
            count += 1
        return count

    async with running() as broker:
        client = await broker.client()
        for number in range(64):
            await send(client, number, keys="many" if number else "many one")
        assert await turns("many") >= await turns("one") + 8


@in_virtual_time
async def test_part_of_a_key_and_what_is_in_a_body_are_not_the_key() -> None:
    async with running() as broker:
        client = await broker.client()
        await send(client, 12, keys="order-12")
        for key, more in (("order-1", {}), ("12", {}), ("order-12", {"unique": True}), ("order-12", {"end_ms": 5})):
            answer = await query(client, key, **more)
            assert (answer.code, answer.body) == (ResponseCode.QUERY_NOT_FOUND, b"")
        assert bodies(await query(client, "order-12")) == [b"12"]


@in_virtual_time
async def test_the_oldest_of_many_is_found_after_a_restart_and_after_a_kill() -> None:
    for killed in (False, True):
        async with running() as broker:
            client = await broker.client()
            for number in range(2500):
                await send(client, number, keys="k")
            await asyncio.sleep(3)
            await broker.restart(killed=killed)
            client = await broker.client()
            assert bodies(await query(client, "ID9", unique=True)) == [b"9"]
            await send(client, 2500, keys="k")
            assert bodies(await query(client, "ID2500", unique=True)) == [b"2500"]
            assert bodies(await query(client, "k", most=3)) == [b"2498", b"2499", b"2500"]
            assert len(broker.files.names("index")) == 5000 // 511 + 1


@in_virtual_time
async def test_keys_that_are_written_in_many_parts_are_all_found_after_a_stop_and_a_kill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(key_index, "_PART", 7)
    async with running() as broker:
        for is_killed in (False, True):
            client = await broker.client()
            await asyncio.sleep(6)
            for number in range(100):
                await send(client, number + 100 * is_killed)
            if is_killed:
                await asyncio.sleep(6)
            await broker.restart(killed=is_killed)
        client = await broker.client()
        for number in range(200):
            assert bodies(await query(client, f"ID{number}", unique=True)) == [b"%d" % number]


@in_virtual_time
async def test_an_answer_has_as_many_of_the_newest_as_a_frame_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MOST_FOUND_BYTES", 2000)
    async with running() as broker:
        client = await broker.client()
        for number in range(64):
            await send(client, number, keys="k" + "x" * 100 + " all")
        answer = await query(client, "all")
        assert 1000 < len(answer.body) <= 2000
        assert bodies(answer)[-1] == b"63"
        monkeypatch.setattr(queries, "MOST_FOUND_BYTES", 10)
        assert bodies(await query(client, "all")) == [b"63"]


class NoRoomForIndexes(MemoryFiles):
    """Makes no file of the index until there is room."""

    has_room = False

    def open(self, path: str, *, create: bool = False) -> File:
        if create and path.startswith("index/") and not self.has_room:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        return super().open(path, create=create)


@in_virtual_time
async def test_an_index_that_cannot_be_written_costs_no_send_and_is_made_up_for_later() -> None:
    files = NoRoomForIndexes()
    async with running(files) as broker:
        client = await broker.client()
        await asyncio.sleep(11)
        for number in range(10):
            await send(client, number)
        assert bodies(await query(client, "ID3", unique=True)) == []
        assert any(isinstance(event, LoopFailed) and event.loop == "index" for event in broker.events)
        files.has_room = True
        assert bodies(await query(client, "ID3", unique=True)) == [b"3"]
        assert bodies(await query(client, "ID9", unique=True)) == [b"9"]


@in_virtual_time
async def test_an_index_with_too_many_keys_in_memory_goes_on_when_they_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexing, "_MOST_UNSAVED", 10)
    async with running() as broker:
        client = await broker.client()
        await asyncio.sleep(6)
        for number in range(50):
            await send(client, number)
        assert bodies(await query(client, "ID5", unique=True)) == [b"5"]
        await asyncio.sleep(11)
        for number in (5, 30, 49):
            assert bodies(await query(client, f"ID{number}", unique=True)) == [b"%d" % number]


@in_virtual_time
async def test_a_question_at_a_start_waits_while_keys_of_a_long_log_have_to_be_written_before_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexing, "_MOST_UNSAVED", 100)
    async with running() as broker:
        client = await broker.client()
        for number in range(350):
            await send(client, number)
        await broker.restart(killed=True)
        assert bodies(await query(await broker.client(), "ID349", unique=True)) == [b"349"]
        assert not [event for event in broker.events if isinstance(event, LoopFailed) and event.loop == "index"]


@in_virtual_time
async def test_a_question_waits_only_so_long_for_an_index_that_is_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexing, "_PATIENCE", 0.0)
    async with running() as broker:
        client = await broker.client()
        for number in range(1000):
            await send(client, number)
        assert bodies(await query(client, "ID999", unique=True)) == []
        await asyncio.sleep(6)
        assert bodies(await query(client, "ID999", unique=True)) == [b"999"]
