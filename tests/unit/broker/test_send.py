"""Sends: what is stored, what is refused, and how the answer looks."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from rocketapp.model.message_queue import MessageQueue
from rocketapp.wire import properties
from rocketapp.wire.batch import encode_batch
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import BINARY, JSON, Command
from rocketapp.wire.frame import encode
from rocketapp.wire.message_id import parse_offset_id
from rocketapp.wire.requests.locks import LockBody
from rocketapp.wire.requests.offsets import QueueRequest
from rocketapp.wire.requests.send import SendRequest, SendResponse, usual_answer
from tests.cases import cases
from tests.unit.broker.asking import Client, running
from tests.unit.broker.store.disk import Disk
from tests.unit.scripted import in_virtual_time


@in_virtual_time
async def test_a_send_creates_its_topic_and_comes_back_from_a_pull() -> None:
    async with running() as broker:
        client = await broker.client()
        answer = await client.send(
            "orders", b"five", "TAGS\x01paid\x02UNIQ_KEY\x01A1\x02", queue_id=2, born_ms=17, flag=3
        )
        assert answer.code == ResponseCode.SUCCESS
        sent = SendResponse.from_fields(answer.fields)
        assert (sent.queue_id, sent.queue_offset, sent.transaction_id) == (2, 0, "A1")
        assert answer.fields is not None
        assert (answer.fields["MSG_REGION"], answer.fields["TRACE_ON"]) == ("DefaultRegion", "true")
        (message,) = await client.messages("orders", queue_id=2)
        assert (message.body, message.tag, message.message_id) == (b"five", "paid", "A1")
        assert (message.born_ms, message.flag) == (17, 3)
        assert message.offset_message_id == sent.message_id
        assert parse_offset_id(sent.message_id) == (b"\x7f\x00\x00\x01", 9876, 0)
        assert message.born_host == client.connection.local
        assert message.properties["CLUSTER"] == "DefaultCluster"


@in_virtual_time
async def test_offsets_of_a_queue_are_dense_and_its_own() -> None:
    async with running() as broker:
        client = await broker.client()
        for queue_id in (0, 1, 0, 0, 1):
            await client.send("orders", queue_id=queue_id)
        answer = await client.send("orders", queue_id=1)
        assert SendResponse.from_fields(answer.fields).queue_offset == 2


@in_virtual_time
async def test_a_negative_queue_id_lets_the_broker_choose() -> None:
    async with running() as broker:
        client = await broker.client()
        chosen = {
            SendResponse.from_fields((await client.send("orders", queue_id=-100)).fields).queue_id for _ in range(40)
        }
        assert chosen == {0, 1, 2, 3}


@cases(
    "topic, body, more, code",
    [
        ("SCHEDULE_TOPIC_XXXX", b"x", {}, ResponseCode.NO_PERMISSION),
        ("../../etc", b"x", {}, ResponseCode.INVALID_PARAMETER),
        ("a" * 128, b"x", {}, ResponseCode.INVALID_PARAMETER),
        ("nul\x00", b"x", {}, ResponseCode.INVALID_PARAMETER),
        ("", b"x", {}, ResponseCode.INVALID_PARAMETER),
        ("orders", b"", {}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", b"x" * 2_001, {}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", b"x", {"queue_id": 100}, ResponseCode.INVALID_PARAMETER),
        ("orders", b"x", {"default_queues": 0, "queue_id": -1}, ResponseCode.NO_PERMISSION),
        ("orders", b"x", {"properties": "TRAN_MSG\x01true\x02DELAY\x013\x02"}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", b"x", {"properties": "a\x01" + "x" * 32_767}, ResponseCode.MESSAGE_ILLEGAL),
        ("orders", b"x", {"default_topic": "none"}, ResponseCode.TOPIC_NOT_EXIST),
        ("%RETRY%" + "g" * 121, b"x", {}, ResponseCode.INVALID_PARAMETER),
        ("%RETRY%", b"x", {}, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_what_may_not_be_stored_is_refused_with_the_fields_that_java_needs(
    topic: str, body: bytes, more: dict[str, Any], code: int
) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running(max_message_bytes=2_000) as broker:
            client = await broker.client()
            answer = await client.send(topic, body, **more)
            assert answer.code == code
            assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
            assert answer.remark
            assert (await client.send("fine")).code == ResponseCode.SUCCESS

    story()


@pytest.mark.parametrize(
    "fields", [None, {}, {"b": "orders"}, {"b": "orders", "e": "x"}, {"b": "orders", "e": "9" * 5000}]
)
def test_hostile_fields_are_answered_and_the_broker_lives_on(fields: dict[str, str] | None) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            answer = await client.ask(RequestCode.SEND_MESSAGE_V2, fields, b"x")
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.fields == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
            assert (await client.send("fine")).code == ResponseCode.SUCCESS

    story()


@in_virtual_time
async def test_without_automatic_creation_an_unknown_topic_is_refused() -> None:
    async with running(auto_create_topics=False) as broker:
        client = await broker.client()
        assert (await client.send("orders")).code == ResponseCode.TOPIC_NOT_EXIST


@in_virtual_time
async def test_a_batch_is_stored_message_by_message_each_with_its_own_key() -> None:
    async with running() as broker:
        client = await broker.client()
        items = [(b"one", b"UNIQ_KEY\x01A1\x02KEYS\x01k\x02", 1), (b"two", b"TAGS\x01t\x02", 2)]
        request = SendRequest("makers", "orders", queue_id=1, properties="UNIQ_KEY\x01WRAPPER\x02", batch=True)
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, request.to_fields(), encode_batch(items))
        assert answer.code == ResponseCode.SUCCESS
        first, second = await client.messages("orders", queue_id=1)
        assert (first.body, first.message_id, first.keys, first.flag) == (b"one", "A1", ["k"], 1)
        assert (second.body, second.tag, second.flag) == (b"two", "t", 2)
        assert len({first.message_id, second.message_id, "WRAPPER"}) == 3
        sent = SendResponse.from_fields(answer.fields)
        assert sent.message_id == f"{first.offset_message_id},{second.offset_message_id}"
        assert (first.offset, second.offset) == (0, 1)


@pytest.mark.parametrize(
    ("topic", "body"),
    [
        ("orders", b""),
        ("orders", b"not a batch"),
        ("orders", encode_batch([(b"x", b"DELAY\x013\x02", 0)])),
        ("orders", encode_batch([(b"x", b"", 0), (b"", b"", 0)])),
        ("%RETRY%billing", encode_batch([(b"x", b"", 0)])),
    ],
)
def test_a_bad_batch_is_refused_as_a_whole(topic: str, body: bytes) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            request = SendRequest("makers", topic, batch=True)
            answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, request.to_fields(), body)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert await client.messages(topic) == []

    story()


@in_virtual_time
async def test_a_one_way_send_is_stored_and_not_answered() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        for topic in ("orders", "quiet"):  # the second one is made, and written down, by it
            heard, request = client.connection.last_heard, SendRequest("makers", topic)
            await asyncio.sleep(1)
            client.connection.send_one_way(Command(RequestCode.SEND_MESSAGE_V2, request.to_fields(), b"quiet"))
            await asyncio.sleep(1)
            assert client.connection.last_heard == heard
            assert [message.body for message in await client.messages(topic)][-1] == b"quiet"


@in_virtual_time
async def test_a_delayed_message_appears_when_it_is_due_and_not_before() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        began = broker.loop.time()
        answer = await client.send("orders", b"later", "DELAY\x012\x02")
        assert answer.code == ResponseCode.SUCCESS
        held = client.pull("orders", offset=1)
        assert (await held).code == ResponseCode.SUCCESS
        assert 5.0 <= broker.loop.time() - began <= 5.05
        (message,) = await client.messages("orders", offset=1)
        assert message.body == b"later"


@in_virtual_time
async def test_a_retry_goes_to_the_dead_letters_when_its_attempts_are_used_up() -> None:
    async with running() as broker:
        client = await broker.client()
        for times in (2, 3):
            answer = await client.send(
                "%RETRY%billing", b"%d" % times, "DELAY\x013\x02", reconsume_times=times, max_reconsume_times=2
            )
            assert answer.code == ResponseCode.SUCCESS
        assert await client.messages("%RETRY%billing") == []
        (dead,) = await client.messages("%DLQ%billing")
        assert (dead.body, dead.reconsume_times) == (b"3", 3)


@in_virtual_time
async def test_a_group_that_holds_a_lock_gets_no_retries_but_dead_letters() -> None:
    async with running() as broker:
        client = await broker.client()
        lock = LockBody("billing", "client", [MessageQueue("orders", "broker-a", 0)])
        await client.ask(RequestCode.LOCK_BATCH_MQ, {}, lock.encode())
        await client.send("%RETRY%billing", b"dead")
        assert [message.body for message in await client.messages("%DLQ%billing")] == [b"dead"]
        await client.ask(RequestCode.UNLOCK_BATCH_MQ, {}, lock.encode())
        await client.send("%RETRY%billing", b"again")
        assert [message.body for message in await client.messages("%RETRY%billing")] == [b"again"]


@in_virtual_time
async def test_a_dead_letter_keeps_the_properties_that_came_with_it() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("%RETRY%billing", b"x", "reason\x01boom\x02", reconsume_times=99)
        (dead,) = await client.messages("%DLQ%billing")
        assert dead.properties["reason"] == "boom"
        assert properties.decode(dead.raw_properties)["DELAY"] == "-1"


def read_of(client: Client, *requests: tuple[int, SendRequest | QueueRequest, bytes]) -> list[asyncio.Future[Command]]:
    """Start requests that the broker gets in one read."""
    commands = [Command(code, request.to_fields(), body) for code, request, body in requests]
    return [client.connection.start_request(command, timeout=900.0) for command in commands]


@in_virtual_time
async def test_the_sends_of_one_read_are_one_write_and_each_has_its_own_answer() -> None:
    writes: list[str] = []
    disk = Disk()
    async with running(disk) as broker:  # type: ignore[arg-type]
        client = await broker.client()
        await client.send("orders", queue_id=0)
        disk.on_call = lambda number, name, path: writes.append(path) if "commitlog" in path else None
        sends = [
            (RequestCode.SEND_MESSAGE_V2, SendRequest("makers", "orders", queue_id=at % 2), b"%d" % at)
            for at in range(7)
        ]
        asks = (RequestCode.GET_MAX_OFFSET, QueueRequest("orders", 1), b"")
        answers = [await answer for answer in read_of(client, *sends[:5], asks, *sends[5:])]
        assert len(writes) <= 3
        assert answers.pop(5).fields == {"offset": "2"}  # what follows a send finds it
        stored = [SendResponse.from_fields(answer.fields) for answer in answers]
        assert [(one.queue_id, one.queue_offset) for one in stored] == [
            (at % 2, at // 2 + (at % 2 == 0)) for at in range(7)
        ]
        assert [message.body for message in await client.messages("orders", queue_id=1)] == [b"1", b"3", b"5"]
        assert {message.offset_message_id for message in await client.messages("orders", queue_id=1)} == {
            one.message_id for one in stored if one.queue_id
        }


@pytest.mark.parametrize("serializer", [JSON, BINARY])
@in_virtual_time
async def test_a_send_is_answered_in_the_form_of_its_header(serializer: int) -> None:
    async with running() as broker:
        client = await broker.client()
        fields = SendRequest("makers", "orders", queue_id=0).to_fields()
        request = Command(RequestCode.SEND_MESSAGE_V2, fields, b"x", serializer=serializer)
        answer = await client.connection.start_request(request, timeout=3.0)
        assert (answer.code, answer.serializer) == (ResponseCode.SUCCESS, serializer)
        assert SendResponse.from_fields(answer.fields).queue_offset == 0


@in_virtual_time
async def test_a_send_that_cannot_be_stored_costs_none_of_its_neighbours() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders", queue_id=0)
        bodies = [b"before", bytes(1_100_000), b"after"]
        sends = [(RequestCode.SEND_MESSAGE_V2, SendRequest("makers", "orders", queue_id=0), body) for body in bodies]
        codes = [(await answer).code for answer in read_of(client, *sends)]
        assert codes == [ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SUCCESS]
        assert [message.body for message in await client.messages("orders")] == [b"hello", b"before", b"after"]


@in_virtual_time
async def test_a_batch_among_the_sends_of_one_read_is_answered_with_its_own_ids_and_a_failed_write_costs_none() -> None:
    disk = Disk()
    async with running(disk) as broker:  # type: ignore[arg-type]
        client = await broker.client()
        await client.send("orders", queue_id=0)
        refused: list[str] = []

        def refuse_one_write(number: int, name: str, path: str) -> None:
            if "commitlog" in path and name == "write":
                refused.append(path)
                if len(refused) == 2:  # the first request leaves alone
                    raise OSError(errno.ENOSPC, "full")

        disk.on_call = refuse_one_write
        single = SendRequest("makers", "orders", queue_id=0)
        batch = SendRequest("makers", "orders", queue_id=0, batch=True)
        body = encode_batch([(b"b%d" % at, b"", 0) for at in range(3)])
        sends = [(RequestCode.SEND_MESSAGE_V2, single, b"%d" % at) for at in range(3)]
        for _ in range(2):  # by itself, after the failed write; then with one write
            asked = [*sends[:2], (RequestCode.SEND_BATCH_MESSAGE, batch, body), *sends[2:]]
            answers = [SendResponse.from_fields((await answer).fields) for answer in read_of(client, *asked)]
            stored = await client.messages("orders", answers[0].queue_offset)
            assert [message.body for message in stored] == [b"0", b"1", b"b0", b"b1", b"b2", b"2"]
            told = ",".join(answer.message_id for answer in answers)
            assert told == ",".join(message.offset_message_id for message in stored)
        assert len(refused) == 1 + 1 + 3 + 2


@pytest.mark.parametrize("key", ["A1", "\u00e9", 'with "quotes"', "back\\slash", "%d"])
@in_virtual_time
async def test_an_answer_names_the_key_of_its_message_whatever_is_in_it(key: str) -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        answer = await client.send("orders", b"x", f"UNIQ_KEY\x01{key}\x02", queue_id=0)
        found = SendResponse.from_fields(answer.fields)
        assert found.transaction_id == key
        if key.isalnum():
            usual = usual_answer(found.message_id, 0, found.queue_offset, key, answer.opaque)
            assert usual == encode(Command.response(answer, 0, fields=found.to_fields()))
