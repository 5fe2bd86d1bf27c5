"""Half messages are seen after their commit alone; what is left open is asked about, also after a restart."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from rocketapp.broker.half_messages import MOST_CHECKS
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.send import SendResponse
from rocketapp.wire.requests.transactions import CheckTransaction, EndTransaction
from tests.unit.broker.asking import Client, running
from tests.unit.scripted import in_virtual_time

HALF = "TRAN_MSG\x01true\x02PGROUP\x01makers\x02UNIQ_KEY\x01A1\x02TAGS\x01paid\x02"
COMMIT, ROLLBACK = 8, 12


async def half(client: Client, body: bytes = b"hello") -> SendResponse:
    answer = await client.send("orders", body, HALF, queue_id=2)
    assert answer.code == ResponseCode.SUCCESS
    return SendResponse.from_fields(answer.fields)


async def end(client: Client, sent: SendResponse, decision: int, group: str = "makers") -> int:
    physical = parse_offset_id(sent.message_id)[2]
    request = EndTransaction(group, "orders", sent.queue_offset, physical, decision, "A1")
    return (await client.ask(RequestCode.END_TRANSACTION, request.to_fields())).code


def questions(client: Client) -> list[CheckTransaction]:
    return [
        CheckTransaction.from_fields(command.fields)
        for command in client.asked
        if command.code == RequestCode.CHECK_TRANSACTION_STATE
    ]


@in_virtual_time
async def test_a_half_message_is_seen_after_its_commit_and_never_after_a_rollback() -> None:
    async with running() as broker:
        client = await broker.client()
        kept, gone = await half(client, b"kept"), await half(client, b"gone")
        assert (kept.queue_offset, gone.queue_offset, kept.transaction_id) == (0, 1, "A1")
        assert await client.messages("orders", queue_id=2) == []
        assert await end(client, gone, ROLLBACK) == ResponseCode.SUCCESS
        assert await end(client, kept, COMMIT) == ResponseCode.SUCCESS
        (message,) = await client.messages("orders", queue_id=2)
        assert (message.body, message.topic, message.tag, message.offset) == (b"kept", "orders", "paid", 0)
        for sent in (kept, gone):
            assert await end(client, sent, COMMIT) == ResponseCode.SYSTEM_ERROR
        assert len(await client.messages("orders", queue_id=2)) == 1


@in_virtual_time
async def test_an_end_that_does_not_fit_changes_nothing() -> None:
    async with running() as broker:
        client = await broker.client()
        sent = await half(client)
        for wrong, decision, group in [
            (replace(sent, queue_offset=7), COMMIT, "makers"),
            (sent, COMMIT, "others"),
            (sent, 0, "makers"),
        ]:
            assert await end(client, wrong, decision, group) == ResponseCode.SYSTEM_ERROR
        assert await client.messages("orders", queue_id=2) == []
        assert await end(client, sent, COMMIT) == ResponseCode.SUCCESS


@in_virtual_time
async def test_its_group_is_asked_again_and_again_also_by_a_broker_that_restarted() -> None:
    async with running() as broker:
        client = await broker.client()
        ended, left = await half(client, b"ended"), await half(client, b"left")
        await end(client, ended, ROLLBACK)
        await broker.restart(killed=True)
        client = await broker.client()
        await client.heartbeat("billing", "orders")
        await asyncio.sleep(61)
        assert [(one.half_offset, one.topic) for one in questions(client)] == [
            (left.queue_offset, "RMQ_SYS_TRANS_HALF_TOPIC")
        ] * 6
        asked = next(one for one in client.asked if one.code == RequestCode.CHECK_TRANSACTION_STATE)
        (message,) = decode_records(asked.body, None)
        assert (message.topic, message.queue_id, message.body) == ("orders", 2, b"left")
        await end(client, left, COMMIT)
        await asyncio.sleep(61)
        assert len(questions(client)) == 6
        assert [one.body for one in await client.messages("orders", queue_id=2)] == [b"left"]


@in_virtual_time
async def test_the_options_say_when_and_how_often_a_group_is_asked() -> None:
    async with running(transaction_timeout=1.5, transaction_check_interval=2.0) as broker:
        client = await broker.client()
        await client.heartbeat("billing", "orders")
        await asyncio.sleep(0.7)
        await half(client)
        for wanted in (0, 1, 2):  # after 2 s it is 1.3 s old
            await asyncio.sleep(2.0)
            assert len(questions(client)) == wanted


@in_virtual_time
async def test_what_is_never_decided_is_given_up() -> None:
    async with running() as broker:
        client = await broker.client()
        await half(client)
        await client.heartbeat("billing", "orders")
        for _ in range(MOST_CHECKS + 3):
            await asyncio.sleep(30)
            await client.heartbeat("billing", "orders")
        assert len(questions(client)) == MOST_CHECKS
        assert [one.body for one in await client.messages("TRANS_CHECK_MAX_TIME_TOPIC")] == [b"hello"]


@in_virtual_time
async def test_a_question_counts_when_a_producer_was_asked() -> None:
    """An app may be away for longer than all questions take."""
    async with running() as broker:
        client = await broker.client()
        sent = await half(client)
        await asyncio.sleep(3600)
        client = await broker.client()
        await client.heartbeat("billing", "orders")
        await asyncio.sleep(11)
        assert [one.half_offset for one in questions(client)] == [sent.queue_offset]
        assert await end(client, sent, COMMIT) == ResponseCode.SUCCESS
        assert [one.body for one in await client.messages("orders", queue_id=2)] == [b"hello"]


@in_virtual_time
async def test_an_end_is_written_so_that_apache_rocketmq_4_reads_it() -> None:
    """It reads the text of an end as one number; 5.x takes several with commas behind them, and one without."""
    async with running() as broker:
        client = await broker.client()
        for _ in range(2):
            await end(client, await half(client), COMMIT)
        assert [one.body for one in await client.messages("RMQ_SYS_TRANS_OP_HALF_TOPIC")] == [b"0", b"1"]


@in_virtual_time
async def test_a_clock_that_goes_back_keeps_no_question_waiting() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.heartbeat("billing", "orders")
        await half(client)
        broker.clock.epoch -= 3600
        await asyncio.sleep(30)
        assert questions(client)


@in_virtual_time
async def test_a_half_message_that_comes_after_the_clock_went_back_is_given_its_time() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.heartbeat("billing", "orders")
        await client.send("orders")
        broker.clock.epoch -= 3600
        await asyncio.sleep(9)
        await half(client)
        await asyncio.sleep(2)
        assert not questions(client)
        await asyncio.sleep(10)
        assert questions(client)
