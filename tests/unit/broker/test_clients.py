"""Members of groups, told of each other."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.broker.processors.clients import MOST_GROUPS
from rocketapp.broker.store.files import File, MemoryFiles
from rocketapp.model.event import SubscriptionsDiffer
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.clients import ConsumerData, Heartbeat, UnregisterRequest, decode_members
from tests.cases import cases
from tests.unit.broker.asking import Client, running
from tests.unit.scripted import in_virtual_time

CHANGED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


async def members(client: Client, group: str = "billing") -> list[str] | None:
    answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": group})
    return decode_members(answer.body) if answer.code == ResponseCode.SUCCESS else None


@in_virtual_time
async def test_a_newcomer_is_told_to_all_and_so_is_its_leaving() -> None:
    async with running() as broker:
        one, two = await broker.client("one"), await broker.client("two")
        await one.heartbeat("billing", "orders")
        assert (one.told(CHANGED), two.told(CHANGED)) == (1, 0)
        await two.heartbeat("billing", "orders")
        await one.heartbeat("billing", "orders")
        assert (one.told(CHANGED), two.told(CHANGED)) == (2, 1)
        assert await members(one) == ["one", "two"]
        await two.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "two", "consumerGroup": "billing"})
        assert await members(one) == ["one"]
        assert (one.told(CHANGED), two.told(CHANGED)) == (3, 1)


@in_virtual_time
async def test_the_news_are_one_way_and_name_the_group() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.heartbeat("billing", "orders")
        (news,) = client.asked
        assert (news.is_one_way, news.fields) == (True, {"consumerGroup": "billing"})


@in_virtual_time
async def test_another_topic_is_news_and_another_version_is_not() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.heartbeat("billing", "orders", version=1)
        await client.heartbeat("billing", "orders", version=2)
        await client.heartbeat("billing", "orders", "stock", version=2)
        await client.heartbeat("billing", "stock", version=2)
        await members(client)
        assert client.told(CHANGED) == 3


@in_virtual_time
async def test_a_lost_connection_is_told_at_once() -> None:
    async with running() as broker:
        one, two = await broker.client("one"), await broker.client("two")
        await one.heartbeat("billing", "orders")
        await two.heartbeat("billing", "orders")
        before = one.told(CHANGED)
        await two.connection.close()
        assert await members(one) == ["one"]
        assert one.told(CHANGED) == before + 1
        assert broker.loop.time() < 1


@in_virtual_time
async def test_a_group_without_members_is_an_error_not_an_empty_list() -> None:
    async with running() as broker:
        client = await broker.client()
        answer = await client.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "billing"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "no consumer for this group, billing"


@in_virtual_time
async def test_a_heartbeat_makes_the_groups_retry_topic() -> None:
    async with running() as broker:
        client = await broker.client()
        route = {"topic": "%RETRY%billing"}
        assert (await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)).code == ResponseCode.TOPIC_NOT_EXIST
        answer = await client.heartbeat("billing", "orders")
        assert answer.code == ResponseCode.SUCCESS
        assert not answer.fields, "the short form of the heartbeat must not be offered"
        assert (await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)).code == ResponseCode.SUCCESS


@in_virtual_time
async def test_broadcasting_members_are_not_told() -> None:
    async with running() as broker:
        one, two = await broker.client("one"), await broker.client("two")
        await one.heartbeat("billing", "orders", model="BROADCASTING")
        await two.heartbeat("billing", "orders", model="BROADCASTING")
        await members(one)
        assert one.told(CHANGED) == two.told(CHANGED) == 0


@in_virtual_time
async def test_a_group_may_be_configured_not_to_be_told() -> None:
    async with running() as broker:
        client = await broker.client()
        body = b'{"groupName":"billing","notifyConsumerIdsChangedEnable":false}'
        await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        await client.heartbeat("billing", "orders")
        lost, leaving = await broker.client("lost"), await broker.client("leaving")
        await lost.heartbeat("billing", "orders")
        await leaving.heartbeat("billing", "orders")
        await lost.connection.close()
        fields = UnregisterRequest("leaving", consumer_group="billing").to_fields()
        await leaving.ask(RequestCode.UNREGISTER_CLIENT, fields)
        await client.send("orders")  # a new topic
        assert await members(client) == ["client"]
        assert client.told(CHANGED) == 0


@in_virtual_time
async def test_the_members_of_a_deleted_group_are_told_who_has_left() -> None:
    async with running() as broker:
        client, lost = await broker.client(), await broker.client("lost")
        await client.heartbeat("billing", "orders")
        await lost.heartbeat("billing", "orders")
        await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "billing"})
        before = client.told(CHANGED)
        await lost.connection.close()
        assert await members(client) == ["client"]
        assert client.told(CHANGED) == before + 1


@in_virtual_time
async def test_a_client_that_sends_no_heartbeat_any_more_is_forgotten() -> None:
    async with running(client_expiry=60.0) as broker:
        one, two = await broker.client("one"), await broker.client("two")
        await one.heartbeat("billing", "orders")
        await two.heartbeat("billing", "orders")
        for _ in range(3):
            await asyncio.sleep(15)
            await one.heartbeat("billing", "orders")
            assert await members(two) == ["one", "two"]  # it speaks, but does not send a heartbeat
        await asyncio.sleep(30)
        assert await members(one) == ["one"]
        assert two.connection.is_closed
        assert one.told(CHANGED) == 3


@cases(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"clientID":null}',
        b'{"clientID":"c","consumerDataSet":[{}]}',
        b"\xff\x00",
        b"[" * 100_000,
    ],
)
def test_a_hostile_heartbeat_is_refused(body: bytes) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            answer = await client.ask(RequestCode.HEART_BEAT, {}, body)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert (await client.heartbeat("billing", "orders")).code == ResponseCode.SUCCESS

    story()


@in_virtual_time
async def test_a_heartbeat_with_an_illegal_group_makes_no_topic() -> None:
    async with running() as broker:
        client = await broker.client()
        answer = await client.heartbeat("../up", "orders")
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert not [path for path in broker.files.paths() if ".." in path]
        assert (await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%../up"})).code == 17


class CountedSaves(MemoryFiles):
    """How often a table was written."""

    saves = 0

    def open(self, path: str, *, create: bool = False) -> File:
        self.saves += create and path.startswith("config/")
        return super().open(path, create=create)


def heartbeat_of(groups: int) -> bytes:
    return Heartbeat("client", (), tuple(ConsumerData(f"group-{number}") for number in range(groups))).encode()


@in_virtual_time
async def test_a_heartbeat_of_many_new_groups_writes_each_table_once() -> None:
    files = CountedSaves()
    async with running(files) as broker:
        client = await broker.client()
        files.saves = 0
        assert (await client.ask(RequestCode.HEART_BEAT, {}, heartbeat_of(MOST_GROUPS))).code == ResponseCode.SUCCESS
        assert files.saves == 2
        for group in ("group-0", f"group-{MOST_GROUPS - 1}"):
            assert await members(client, group) == ["client"]
            route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": f"%RETRY%{group}"})
            assert route.code == ResponseCode.SUCCESS


@in_virtual_time
async def test_a_heartbeat_of_too_many_groups_is_refused_and_makes_none() -> None:
    files = CountedSaves()
    async with running(files) as broker:
        client = await broker.client()
        files.saves = 0
        answer = await client.ask(RequestCode.HEART_BEAT, {}, heartbeat_of(MOST_GROUPS + 1))
        assert (answer.code, files.saves) == (ResponseCode.INVALID_PARAMETER, 0)
        assert f"{MOST_GROUPS}" in (answer.remark or "")
        route = await client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "%RETRY%group-0"})
        assert route.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        (b'{"topic":"orders","subString":"a || b"}', ResponseCode.SUCCESS),
        (b'{"topic":"orders","subString":"||"}', ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        (b'{"topic":"orders","subString":"a > 1","expressionType":"SQL92"}', ResponseCode.SUCCESS),
        (
            b'{"topic":"orders","subString":"a >","expressionType":"SQL92"}',
            ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        ),
        (b"[]", ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_subscription_is_checked_before_it_is_used(subscription: bytes, code: int) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            body = b'{"clientId":"c","group":"g","subscriptionData":' + subscription + b"}"
            assert (await client.ask(RequestCode.CHECK_CLIENT_CONFIG, None, body)).code == code

    story()


@in_virtual_time
async def test_a_new_topic_is_told_once_to_each_group_that_waits_for_it_and_to_no_other() -> None:
    async with running() as broker:
        waiting, twice, other = await broker.client("one"), await broker.client("two"), await broker.client("three")
        await waiting.heartbeat("billing", "orders", "stock")
        await twice.heartbeat("shipping", "orders")
        await other.heartbeat("audit", "stock")
        before = [client.told(CHANGED) for client in (waiting, twice, other)]
        await other.send("orders")
        await other.send("orders")
        told = [client.told(CHANGED) for client in (waiting, twice, other)]
        assert [after - first for after, first in zip(told, before, strict=True)] == [1, 1, 0]
        update = {"topic": "stock", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
        for _ in range(2):
            await other.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, {**update, "defaultTopic": "TBW102"})
        told = [client.told(CHANGED) for client in (waiting, twice, other)]
        assert [after - first for after, first in zip(told, before, strict=True)] == [2, 1, 1]


@in_virtual_time
async def test_members_that_subscribe_differently_are_told_of_once_and_again_when_it_changes() -> None:
    async with running() as broker:
        first, second = await broker.client("one"), await broker.client("two")

        def told() -> list[str]:
            return [event.problem for event in broker.events if isinstance(event, SubscriptionsDiffer)]

        await first.heartbeat("billing", "orders", tags="paid")
        await second.heartbeat("billing", "orders", tags="paid")
        assert told() == []
        for _ in range(3):
            await second.heartbeat("billing", "orders", tags="open", version=2)
        assert told() == ["its members subscribe to orders differently: one to paid, two to open"]
        await second.heartbeat("billing", version=3)
        assert told()[1:] == ["its members subscribe to orders differently: one to paid, two to nothing of it"]
        await first.heartbeat("billing", version=3)
        await first.heartbeat("billing", "orders", tags="paid", version=4)
        assert len(told()) == 3
        await second.ask(RequestCode.UNREGISTER_CLIENT, {"clientID": "two", "consumerGroup": "billing"})
        await second.heartbeat("billing", version=5)
        assert told()[3:] == told()[1:2]
