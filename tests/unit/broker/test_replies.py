"""A reply is handed to the client that asked, and the replier hears whether it got there."""

from __future__ import annotations

from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.replies import PushReply
from rocketapp.wire.requests.send import SendRequest
from tests.unit.broker.asking import Client, running
from tests.unit.scripted import in_virtual_time


async def reply(client: Client, to: str, more: str = "") -> int:
    properties = f"REPLY_TO_CLIENT\x01{to}\x02CORRELATION_ID\x01c1\x02MSG_TYPE\x01reply\x02{more}"
    request = SendRequest("makers", "DefaultCluster_REPLY_TOPIC", properties=properties)
    return (await client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, request.to_fields(), b"42")).code


@in_virtual_time
async def test_a_reply_reaches_the_client_that_asked_and_no_other() -> None:
    async with running() as broker:
        asker, other, replier = [await broker.client(name) for name in ("asker", "other", "replier")]
        for client in (asker, other):
            await client.heartbeat("billing", "orders")
        assert await reply(replier, "asker") == ResponseCode.SUCCESS
        assert (
            asker.told(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT),
            other.told(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT),
        ) == (1, 0)
        pushed = next(one for one in asker.asked if one.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
        assert pushed.body == b"42"
        assert "CORRELATION_ID\x01c1" in PushReply.from_fields(pushed.fields).properties


@in_virtual_time
async def test_a_reply_to_a_client_that_is_gone_is_told() -> None:
    async with running() as broker:
        replier = await broker.client("replier")
        assert await reply(replier, "gone") == ResponseCode.SYSTEM_ERROR
        assert [one.body for one in await replier.messages("DefaultCluster_REPLY_TOPIC")] == [b"42"]


@in_virtual_time
async def test_a_reply_that_the_client_does_not_take_is_told() -> None:
    async with running() as broker:
        asker, replier = await broker.client("asker"), await broker.client("replier")
        await asker.heartbeat("billing", "orders")
        for code in (ResponseCode.SYSTEM_BUSY, None):  # it refuses, or never answers
            asker.code = code
            assert await reply(replier, "asker") == ResponseCode.SYSTEM_ERROR


@in_virtual_time
async def test_a_reply_that_is_not_stored_is_handed_over_nevertheless() -> None:
    async with running() as broker:
        asker, replier = await broker.client("asker"), await broker.client("replier")
        await asker.heartbeat("billing", "orders")
        assert await reply(replier, "asker", f"LARGE\x01{'x' * 40_000}\x02") == ResponseCode.SUCCESS
        assert asker.told(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT) == 1
        assert await replier.messages("DefaultCluster_REPLY_TOPIC") == []
