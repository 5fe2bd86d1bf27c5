"""Offsets asked for and committed over the wire."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.broker.offsets import OffsetTable
from rocketapp.broker.store.config_files import CONSUMER_OFFSETS
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.offsets import CommitRequest, OffsetResponse, QueryOffsetRequest
from tests.unit.broker.asking import Client, Running, running
from tests.unit.scripted import in_virtual_time


async def query(client: Client, *, zero: bool | None = None, queue_id: int = 0) -> int | None:
    request = QueryOffsetRequest("billing", "orders", queue_id, zero)
    answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, request.to_fields())
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    assert answer.code == ResponseCode.SUCCESS
    return OffsetResponse.from_fields(answer.fields).offset


async def commit(client: Client, offset: int, *, topic: str = "orders", group: str = "billing") -> int:
    request = CommitRequest(group, topic, 0, offset)
    return (await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, request.to_fields())).code


@in_virtual_time
async def test_a_new_group_reads_a_young_queue_from_its_beginning() -> None:
    async with running() as broker:
        client = await broker.client()
        assert await query(client) is None
        await client.send("orders")
        assert await query(client) == 0
        assert await query(client, zero=True) == 0
        assert await query(client, zero=False) is None


@in_virtual_time
async def test_an_empty_queue_has_one_offset_which_hides_no_message_that_comes_next() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        assert await query(client, queue_id=1) == 0
        assert await query(client, queue_id=1, zero=False) is None
        assert await query(client, queue_id=99) is None


@in_virtual_time
async def test_a_committed_offset_is_answered_whatever_it_is() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        assert await commit(client, 77) == ResponseCode.SUCCESS
        assert await query(client, zero=False) == 77
        assert await commit(client, 0) == ResponseCode.SUCCESS
        assert await query(client, zero=False) == 0


@in_virtual_time
async def test_nonsense_is_not_committed() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        assert await commit(client, -1) == ResponseCode.INVALID_PARAMETER
        assert await commit(client, 2**70) == ResponseCode.SYSTEM_ERROR
        assert await commit(client, 1, topic="unknown") == ResponseCode.TOPIC_NOT_EXIST
        assert await commit(client, 1, group="no/group") == ResponseCode.INVALID_PARAMETER
        far = CommitRequest("billing", "orders", 65_535, 1)
        answer = await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, far.to_fields())
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert await query(client, zero=False) is None


@in_virtual_time
async def test_the_ends_of_a_queue_and_times_between_them() -> None:
    async with running() as broker:
        client = await broker.client()
        start_ms = int(broker.clock.now() * 1000)
        for _ in range(3):
            await client.send("orders")
            await asyncio.sleep(10)
        queue = {"topic": "orders", "queueId": "0"}

        async def answer(code: int, **more: str) -> dict[str, str] | None:
            return (await client.ask(code, {**queue, **more})).fields

        assert await answer(RequestCode.GET_MAX_OFFSET) == {"offset": "3"}
        assert await answer(RequestCode.GET_MIN_OFFSET) == {"offset": "0"}
        assert await answer(RequestCode.GET_MAX_OFFSET, topic="unknown") == {"offset": "0"}
        assert await answer(RequestCode.GET_EARLIEST_MSG_STORETIME) == {"timestamp": str(start_ms)}
        assert await answer(RequestCode.GET_EARLIEST_MSG_STORETIME, queueId="1") == {"timestamp": "-1"}
        middle = str(start_ms + 5_000)
        assert await answer(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=middle) == {"offset": "1"}
        upper = await answer(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timestamp=middle, boundaryType="upper")
        assert upper == {"offset": "0"}


@pytest.mark.parametrize("killed", [False, True])
def test_offsets_outlive_the_broker(killed: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            for _ in range(9):
                await client.send("orders")
            await commit(client, 7)
            await asyncio.sleep(broker.config.offsets_flush_interval + 0.1 if killed else 0)
            await broker.restart(killed=killed)
            client = await broker.client()
            assert await query(client, zero=False) == 7

    story()


@in_virtual_time
async def test_a_table_that_cannot_be_read_stops_the_start_instead_of_beginning_at_zero() -> None:
    from rocketapp.broker.store.files import replace_whole
    from rocketapp.errors import ConfigError

    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        await commit(client, 1)
        await broker.broker.stop()
        for path in (CONSUMER_OFFSETS, f"{CONSUMER_OFFSETS}.bak"):
            replace_whole(broker.files, path, b'{"offsetTable":{"orders@bil')
        with pytest.raises(ConfigError, match="consumerOffset"):
            await Running(broker.files).start()


@in_virtual_time
async def test_the_loss_of_the_table_is_told() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        await broker.broker.stop()
        for path in (CONSUMER_OFFSETS, f"{CONSUMER_OFFSETS}.bak", "config/topics.json", "config/topics.json.bak"):
            broker.files.remove(path)
        async with running(broker.files) as again:
            assert [event for event in again.events if "begin anew" in str(event)]
            client = await again.client()
            assert len(await client.messages("orders")) == 1


def test_offsets_that_a_member_has_committed_at_a_slave_say_that_they_describe_no_place_in_the_log() -> None:
    """Those of Apache RocketMQ say nothing about it; both differ in what they count of popped messages."""
    saved = {"offsetTable": {"orders@billing": {"0": 7}}}
    apache, slave, next_start = OffsetTable(), OffsetTable(), OffsetTable()
    apache.load(saved)
    slave.load({**saved, "logPosition": 4096})
    assert (apache.position, slave.position) == (None, 4096)
    slave.commit("billing", "orders", 0, 9)
    next_start.load(slave.begin_save(1.0)())
    assert (next_start.committed("billing", "orders", 0), next_start.position) == (9, 0)
