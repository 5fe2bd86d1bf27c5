"""Pulls: what is refused, what is found, and what is held until it is."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.model.subscription import SubscriptionData
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.clients import ConsumerData, Heartbeat
from rocketapp.wire.requests.offsets import OffsetResponse, QueryOffsetRequest
from rocketapp.wire.requests.pull import FLAG_COMMIT, FLAG_SUBSCRIPTION, FLAG_SUSPEND, PullResponse
from tests.cases import cases
from tests.unit.broker.asking import running
from tests.unit.scripted import in_virtual_time


@cases(
    "more, code",
    [
        ({"topic": "unknown"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queue_id": -1}, ResponseCode.INVALID_PARAMETER),
        ({"group": "no/group"}, ResponseCode.INVALID_PARAMETER),
        ({"expression": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expression_type": "SQL92", "expression": "a >"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expression_type": "JAVA", "expression": "a > 1"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"sys_flag": 0, "group": "stranger"}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"sys_flag": 0, "topic": "other"}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        ({"sys_flag": 0, "sub_version": 2}, ResponseCode.SUBSCRIPTION_NOT_LATEST),
    ],
)
def test_what_may_not_be_pulled_is_refused(more: dict[str, object], code: int) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            await client.send("orders")
            await client.send("other")
            await client.heartbeat("billing", "orders")
            answer = await client.pull(**{"topic": "orders", **more})  # type: ignore[arg-type]
            assert answer.code == code
            assert answer.remark

    story()


@cases(
    "offset, queue_id, code, next_offset",
    [
        (0, 0, ResponseCode.SUCCESS, 3),
        (2, 0, ResponseCode.SUCCESS, 3),
        (3, 0, ResponseCode.PULL_NOT_FOUND, 3),
        (4, 0, ResponseCode.PULL_OFFSET_MOVED, 3),
        (-1, 0, ResponseCode.PULL_OFFSET_MOVED, 0),
        (0, 1, ResponseCode.PULL_NOT_FOUND, 0),
        (5, 1, ResponseCode.PULL_OFFSET_MOVED, 0),
    ],
)
def test_every_offset_has_its_answer(offset: int, queue_id: int, code: int, next_offset: int) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            for _ in range(3):
                await client.send("orders")
            answer = await client.pull("orders", offset, queue_id=queue_id, sys_flag=FLAG_SUBSCRIPTION)
            assert answer.code == code
            end = 3 if queue_id == 0 else 0
            assert PullResponse.from_fields(answer.fields) == PullResponse(0, next_offset, 0, end)

    story()


@in_virtual_time
async def test_the_groups_own_subscription_filters_by_tag() -> None:
    async with running() as broker:
        client = await broker.client()
        for tag in ("paid", "lost", "paid", "lost"):
            await client.send("orders", tag.encode(), f"TAGS\x01{tag}\x02")
        await client.heartbeat("billing", "orders", tags="paid")
        answer = await client.pull("orders", sys_flag=0)
        assert [message.tag for message in decode_records(answer.body, None)] == ["paid", "paid"]
        assert PullResponse.from_fields(answer.fields).next_offset == 4


@in_virtual_time
async def test_when_no_tag_matches_the_reader_is_sent_on() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders", properties="TAGS\x01lost\x02")
        answer = await client.pull("orders", expression="paid")
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert PullResponse.from_fields(answer.fields).next_offset == 1


@in_virtual_time
async def test_a_held_pull_is_answered_as_soon_as_a_message_comes() -> None:
    async with running() as broker:
        client, producer = await broker.client(), await broker.client("producer")
        await client.send("orders")
        held = client.pull("orders", 1)
        await asyncio.sleep(7)
        assert not held.done()
        await producer.send("orders", b"new")
        answer = await held
        assert broker.loop.time() == pytest.approx(7, abs=0.01)
        assert [message.body for message in decode_records(answer.body, None)] == [b"new"]


@in_virtual_time
async def test_a_held_pull_sleeps_through_messages_of_other_tags_and_queues() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        held = client.pull("orders", 1, expression="paid")
        await client.send("orders", properties="TAGS\x01lost\x02")
        await client.send("orders", queue_id=1, properties="TAGS\x01paid\x02")
        await asyncio.sleep(1)
        assert not held.done()
        await client.send("orders", b"mine", "TAGS\x01paid\x02")
        answer = await held
        assert [message.body for message in decode_records(answer.body, None)] == [b"mine"]


@in_virtual_time
async def test_a_held_pull_expires_at_the_time_it_asked_for() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        answer = await client.pull("orders", 1, suspend_ms=3_000)
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert broker.loop.time() == pytest.approx(3, abs=0.01)
        assert PullResponse.from_fields(answer.fields) == PullResponse(0, 1, 0, 1)


@in_virtual_time
async def test_at_the_first_message_of_a_topic_its_held_pulls_wake() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders", queue_id=3)
        held = client.pull("orders", 0, queue_id=2)
        await client.send("orders", b"first", queue_id=2)
        assert [message.body for message in decode_records((await held).body, None)] == [b"first"]


@in_virtual_time
async def test_pulls_of_a_lost_connection_are_forgotten_and_others_live_on() -> None:
    async with running() as broker:
        client, doomed = await broker.client(), await broker.client("doomed")
        await client.send("orders")
        lost, held = doomed.pull("orders", 1), client.pull("orders", 1)
        await asyncio.sleep(1)
        await doomed.connection.close()
        assert isinstance(lost.exception(), Exception)
        await client.send("orders", b"new")
        assert (await held).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_a_pull_commits_only_when_it_says_so() -> None:
    async with running() as broker:
        client = await broker.client()
        for _ in range(5):
            await client.send("orders")

        async def committed() -> int:
            request = QueryOffsetRequest("billing", "orders", 0, set_zero_if_not_found=False)
            answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, request.to_fields())
            return OffsetResponse.from_fields(answer.fields).offset if answer.code == 0 else -1

        await client.pull("orders", commit_offset=2)
        assert await committed() == -1
        await client.pull("orders", commit_offset=2, sys_flag=FLAG_SUBSCRIPTION | FLAG_COMMIT)
        assert await committed() == 2
        await client.pull("orders", commit_offset=-1, sys_flag=FLAG_SUBSCRIPTION | FLAG_COMMIT)
        assert await committed() == 2
        held = client.pull("orders", 5, commit_offset=4, sys_flag=FLAG_SUBSCRIPTION | FLAG_COMMIT | FLAG_SUSPEND)
        assert await committed() == 4
        await client.pull("orders", commit_offset=3, sys_flag=FLAG_SUBSCRIPTION | FLAG_COMMIT)
        await held
        assert await committed() == 3


@in_virtual_time
async def test_ten_thousand_held_pulls_wake_one_by_one() -> None:
    async with running(topic_queues=2_000) as broker:
        client = await broker.client()
        await client.send("orders", default_queues=2_000)
        held = [
            client.pull("orders", int(queue_id == 0), queue_id=queue_id) for queue_id in range(2_000) for _ in range(5)
        ]
        await asyncio.sleep(1)
        assert not any(pull.done() for pull in held)
        await client.send("orders", queue_id=1_234)
        done = [index // 5 for index, pull in enumerate(held) if pull.done()]
        assert set(done) <= {1_234}
        assert len(await asyncio.gather(*held[1_234 * 5 : 1_235 * 5])) == 5
        await asyncio.gather(*held)
        assert broker.loop.time() == pytest.approx(15, abs=0.1)


@in_virtual_time
async def test_no_message_is_slept_through_whenever_it_comes() -> None:
    async with running() as broker:
        client, producer = await broker.client(), await broker.client("producer")
        await client.send("orders")
        offset = 1
        for round_ in range(200):
            pull = client.pull("orders", offset)
            for _ in range(round_ % 7):
                await asyncio.sleep(0)
            sent = asyncio.ensure_future(producer.send("orders"))
            answer = await pull
            await sent
            assert answer.code == ResponseCode.SUCCESS
            offset = PullResponse.from_fields(answer.fields).next_offset
        assert broker.loop.time() < 1


@in_virtual_time
async def test_a_deleted_topic_releases_its_held_pulls() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        held = client.pull("orders", 1)
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        assert (await held).code == ResponseCode.PULL_OFFSET_MOVED
        assert (await client.pull("orders")).code == ResponseCode.TOPIC_NOT_EXIST


@in_virtual_time
async def test_a_read_protected_topic_or_a_disabled_group_is_not_served() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        protect = {"topic": "orders", "readQueueNums": "4", "writeQueueNums": "4", "perm": "2"}
        await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, protect)
        assert (await client.pull("orders")).code == ResponseCode.NO_PERMISSION
        await client.send("stock")
        group = b'{"groupName":"billing","consumeEnable":false}'
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
        assert (await client.pull("stock")).code == ResponseCode.NO_PERMISSION


def test_a_filter_by_sql_reads_on_until_it_finds_something() -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            for number in range(1000):
                await client.send("orders", properties=f"amount\x01{number % 100}\x02")
            sql = {"expression_type": "SQL92", "expression": "amount = 99"}
            assert [message.offset for message in await client.messages("orders", **sql)] == [99]
            assert [message.offset for message in await client.messages("orders", 100, **sql)] == [199]
            none = {**sql, "expression": "amount = 100"}
            answer = await client.pull("orders", **none)
            assert (answer.code, answer.body) == (ResponseCode.PULL_RETRY_IMMEDIATELY, b"")
            assert PullResponse.from_fields(answer.fields).next_offset == 800
            answer = await client.pull("orders", 800, **none)
            assert PullResponse.from_fields(answer.fields).next_offset == 1000
            held = client.pull("orders", 1000, **none)
            await client.send("orders", properties="amount\x01100\x02")
            (message,) = decode_records((await held).body, None)
            assert message.offset == 1000

    story()


def test_the_filter_of_a_heartbeat_counts_and_an_illegal_one_costs_only_its_topic() -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            for topic in ("orders", "stock"):
                for number in range(3):
                    await client.send(topic, properties=f"amount\x01{number}\x02")
            legal = SubscriptionData("orders", "amount > 1", version=1, expression_type="SQL92")
            illegal = SubscriptionData("stock", "amount >", version=1, expression_type="SQL92")
            heartbeat = Heartbeat("client", (), (ConsumerData("billing", subscriptions=(legal, illegal)),))
            assert (await client.ask(RequestCode.HEART_BEAT, {}, heartbeat.encode())).code == ResponseCode.SUCCESS
            (message,) = decode_records((await client.pull("orders", sys_flag=0)).body, None)
            assert message.offset == 2
            assert (await client.pull("stock", sys_flag=0)).code == ResponseCode.FILTER_DATA_NOT_EXIST

    story()
