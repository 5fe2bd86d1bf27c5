"""Messages by their ids and keys."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rocketapp.broker.processors import queries
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
