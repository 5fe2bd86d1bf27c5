"""What administrators ask: topics, groups, members, the broker itself."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.frame import encode
from rocketapp.wire.record import decode_records
from rocketapp.wire.requests.admin import (
    TopicConfig,
    UpdateTopicRequest,
    decode_group_list,
    decode_topic_config,
)
from rocketapp.wire.requests.direct import DirectResult
from rocketapp.wire.requests.offsets import CommitRequest
from rocketapp.wire.requests.routes import decode_topic_list
from rocketapp.wire.requests.statistics import (
    ConsumedOffset,
    ConsumerConnection,
    TopicOffset,
    decode_consume_stats,
    decode_topic_stats,
)
from tests.unit.broker.asking import Client, running
from tests.unit.broker.test_transactions import COMMIT, end, half
from tests.unit.scripted import in_virtual_time
from tests.unit.wire.other_half import decode_kv_table


async def update(client: Client, config: TopicConfig) -> int:
    return (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, UpdateTopicRequest(config).to_fields())).code


@in_virtual_time
async def test_a_topic_is_made_changed_shown_and_deleted() -> None:
    async with running() as broker:
        client = await broker.client()
        for config in (TopicConfig("orders", 3, 2), TopicConfig("orders", 6, 6, perm=4, order=True)):
            assert await update(client, config) == ResponseCode.SUCCESS
            answer = await client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"})
            assert decode_topic_config(answer.body) == config
        await broker.restart(killed=True)
        client = await broker.client()
        answer = await client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"})
        assert decode_topic_config(answer.body).perm == 4
        assert (await client.send("orders")).code == ResponseCode.NO_PERMISSION
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        answer = await client.ask(RequestCode.GET_TOPIC_CONFIG, {"topic": "orders"})
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST


@pytest.mark.parametrize(
    "config",
    [
        TopicConfig("TBW102"),
        TopicConfig("../up"),
        TopicConfig("orders", read_queues=-1),
        TopicConfig("orders", write_queues=65_536),
        TopicConfig("orders", perm=8),
    ],
)
def test_a_topic_that_cannot_be_is_refused(config: TopicConfig) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            assert await update(client, config) == ResponseCode.INVALID_PARAMETER

    story()


@in_virtual_time
async def test_a_queue_is_not_taken_away_with_what_a_group_has_yet_to_read() -> None:
    async with running() as broker:
        client = await broker.client()
        assert await update(client, TopicConfig("orders", 4, 4)) == ResponseCode.SUCCESS
        await client.send("orders", queue_id=3)
        assert await update(client, TopicConfig("orders", 2, 2)) == ResponseCode.INVALID_PARAMETER
        assert await update(client, TopicConfig("orders", 4, 2)) == ResponseCode.SUCCESS
        for group, offset in (("billing", 1), ("shipping", 0)):
            commit = CommitRequest(group, "orders", 3, offset)
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit.to_fields())
        answer = await client.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC, UpdateTopicRequest(TopicConfig("orders", 2, 2)).to_fields()
        )
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark.startswith("queue 3 of topic orders holds messages that group shipping has not read")
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, CommitRequest("shipping", "orders", 3, 1).to_fields())
        assert await update(client, TopicConfig("orders", 2, 2)) == ResponseCode.SUCCESS


@in_virtual_time
async def test_what_waited_for_a_queue_that_was_taken_away_comes_in_one_that_is_left() -> None:
    async with running() as broker:
        client = await broker.client()
        await update(client, TopicConfig("orders", 4, 4))
        await client.send("orders", b"level", "DELAY\x013\x02", queue_id=3)
        await client.send("orders", b"timer", "TIMER_DELAY_SEC\x0130\x02", queue_id=3)
        sent = await half(client)
        assert await update(client, TopicConfig("orders", 2, 3)) == ResponseCode.SUCCESS
        assert await end(client, sent, COMMIT) == ResponseCode.SUCCESS
        await asyncio.sleep(40)
        bodies = [[message.body for message in await client.messages("orders", queue_id=each)] for each in range(2)]
        assert bodies == [[b"hello"], [b"level", b"timer"]]


@pytest.mark.parametrize("is_deleted", [False, True])
@in_virtual_time
async def test_what_waits_for_a_topic_that_nobody_reads_any_more_keeps_nothing_else_waiting(is_deleted: bool) -> None:
    async with running() as broker:
        client = await broker.client()
        await update(client, TopicConfig("gone", 4, 4))
        for topic in ("gone", "orders"):
            await client.send(topic, b"late", "DELAY\x013\x02", queue_id=3)
        if is_deleted:
            await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "gone"})
        else:
            assert await update(client, TopicConfig("gone", 0, 4)) == ResponseCode.SUCCESS
        await asyncio.sleep(11)
        assert [message.body for message in await client.messages("orders", queue_id=3)] == [b"late"]


@in_virtual_time
async def test_a_deleted_topic_begins_anew() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders", b"old")
        commit = CommitRequest("billing", "orders", 0, 1)
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit.to_fields())
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
        await client.send("orders", b"new")
        (message,) = await client.messages("orders")
        assert (message.body, message.offset) == (b"new", 0)
        answer = await client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
        assert decode_group_list(answer.body) == []


@pytest.mark.parametrize("topic", ["TBW102", "SCHEDULE_TOPIC_XXXX", "broker-a"])
def test_system_topics_cannot_be_deleted(topic: str) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            answer = await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": topic})
            assert answer.code == ResponseCode.INVALID_PARAMETER

    story()


@in_virtual_time
async def test_how_full_a_topic_is_and_how_far_a_group() -> None:
    async with running() as broker:
        client = await broker.client()
        sent_ms = int(broker.clock.now() * 1000)
        for _ in range(5):
            await client.send("orders")
        await client.heartbeat("billing", "orders")
        await client.pull("orders", max_messages=3)
        commit = CommitRequest("billing", "orders", 0, 2)
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit.to_fields())
        stats = decode_topic_stats((await client.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": "orders"})).body)
        assert len(stats) == 4
        assert stats[MessageQueue("orders", "broker-a", 0)] == TopicOffset(0, 5, sent_ms)
        assert stats[MessageQueue("orders", "broker-a", 1)] == TopicOffset(0, 0, 0)
        answer = await client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "billing"})
        done = decode_consume_stats(answer.body)
        assert done[MessageQueue("orders", "broker-a", 0)] == ConsumedOffset(5, 2, 3, sent_ms)
        assert {queue.topic for queue in done} == {"orders"}
        answer = await client.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "orders"})
        assert decode_group_list(answer.body) == ["billing"]
        answer = await client.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, {"group": "billing"})
        assert decode_topic_list(answer.body) == ["orders"]


@in_virtual_time
async def test_who_is_connected() -> None:
    async with running() as broker:
        client = await broker.client("one")
        await client.heartbeat("billing", "orders", tags="paid")
        answer = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "billing"})
        group = ConsumerConnection.decode(answer.body)
        assert [(member.client_id, member.address) for member in group.connections] == [
            ("one", client.connection.local)
        ]
        assert [subscription.expression for subscription in group.subscriptions] == ["paid"]
        answer = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "makers"})
        assert [member.client_id for member in list(ConsumerConnection.decode(answer.body).connections)] == ["one"]
        answer = await client.ask(RequestCode.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": "unknown"})
        assert answer.code == ResponseCode.CONSUMER_NOT_ONLINE
        answer = await client.ask(RequestCode.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "unknown"})
        assert answer.code == ResponseCode.SYSTEM_ERROR


@in_virtual_time
async def test_a_member_is_asked_what_it_does() -> None:
    async with running() as broker:
        admin, member = await broker.client("admin"), await broker.client("member")
        await member.heartbeat("billing", "orders")
        question = {"consumerGroup": "billing", "clientId": "member", "jstackEnable": "false"}
        answer = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, question)
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b'{"properties":{}}')
        answer = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, {**question, "clientId": "unknown"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        asking = asyncio.ensure_future(admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, question))
        broker.network.hold(broker.address)
        await asyncio.sleep(0)
        broker.network.release(broker.address)
        assert (await asking).code == ResponseCode.SUCCESS
        member.code = None
        answer = await admin.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, question)
        assert answer.code == ResponseCode.CONSUME_MSG_TIMEOUT


@in_virtual_time
async def test_groups_are_configured_shown_and_deleted() -> None:
    async with running() as broker:
        client = await broker.client()
        body = b'{"groupName":"billing","retryMaxTimes":3}'
        assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)).code == 0
        await broker.restart(killed=True)
        client = await broker.client()
        answer = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"})
        assert msgspec.json.decode(answer.body)["retryMaxTimes"] == 3
        answer = await client.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
        assert "billing" in msgspec.json.decode(answer.body)["subscriptionGroupTable"]
        await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "billing", "cleanOffset": "true"})
        answer = await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": "billing"})
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@in_virtual_time
async def test_a_group_that_is_deleted_and_made_in_one_packet_is_there() -> None:
    async with running() as broker:
        client = await broker.client()
        body, group = b'{"groupName":"billing"}', {"groupName": "billing", "group": "billing"}
        make = Command(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
        await client.ask(make.code, None, body)
        pipe = Connection(serve=lambda connection, command: None, max_frame_bytes=1 << 24)
        stream = await broker.network.dial(broker.address, pipe, 3.0)
        stream.write(encode(Command(RequestCode.DELETE_SUBSCRIPTIONGROUP, group)) + encode(make))
        await asyncio.sleep(1)
        assert (await client.ask(RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, group)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    "body", [b"", b"{}", b'{"groupName":"a b"}', b'{"groupName":"g","retryMaxTimes":true}', b"[1]"]
)
def test_a_group_that_cannot_be_is_refused(body: bytes) -> None:
    @in_virtual_time
    async def story() -> None:
        async with running() as broker:
            client = await broker.client()
            answer = await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            assert answer.code != ResponseCode.SUCCESS
            assert answer.remark

    story()


@in_virtual_time
async def test_the_broker_tells_of_itself() -> None:
    async with running() as broker:
        client = await broker.client()
        await asyncio.sleep(2)
        await client.send("orders")
        table = decode_kv_table((await client.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body)
        assert table["msgPutTotalTodayNow"] == "1"
        assert table["brokerActive"] == "true"
        assert all(float(rate) >= 0 for rate in table["putTps"].split())


@in_virtual_time
async def test_a_message_is_found_by_its_place() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders", b"here")
        (message,) = await client.messages("orders")
        answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": str(message.physical_offset)})
        assert decode_records(answer.body, None)[0].body == b"here"
        answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, {"offset": "99999"})
        assert answer.code == ResponseCode.SYSTEM_ERROR


@in_virtual_time
async def test_showing_a_table_does_not_make_it_count_as_saved() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        commit = CommitRequest("billing", "orders", 0, 1)
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit.to_fields())
        answer = await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert msgspec.json.decode(answer.body)["offsetTable"] == {"orders@billing": {"0": 1}}
        await asyncio.sleep(broker.config.offsets_flush_interval + 0.1)
        await broker.restart(killed=True)
        client = await broker.client()
        answer = await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        assert msgspec.json.decode(answer.body)["offsetTable"] == {"orders@billing": {"0": 1}}


@in_virtual_time
async def test_all_topics_in_one_table() -> None:
    async with running() as broker:
        client = await broker.client()
        await client.send("orders")
        answer = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert {"orders", "TBW102"} <= msgspec.json.decode(answer.body)["topicConfigTable"].keys()
        answer = await client.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert "orders" not in decode_topic_list(answer.body)


@in_virtual_time
async def test_a_member_is_handed_the_record_of_a_message_and_its_answer_is_forwarded() -> None:
    async with running() as broker:
        member, asking = await broker.client("m"), await broker.client("other")
        await member.heartbeat("billing", "orders")
        await asking.send("orders", b"hello")
        (message,) = await asking.messages("orders")
        place = message.offset_message_id
        question = {"consumerGroup": "billing", "clientId": "m", "msgId": place, "queueOffset": "0"}
        answer = await asking.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, question)
        assert (answer.code, DirectResult.decode(answer.body)) == (ResponseCode.SUCCESS, DirectResult("CR_SUCCESS"))
        given = member.asked[-1]
        assert (given.fields or {})["queueOffset"] == "0"
        assert [one.body for one in decode_records(given.body, None)] == [b"hello"]
        for wrong, remark in (({"clientId": "gone"}, "not online"), ({"msgId": place[:-2] + "FF"}, "no message")):
            refused = await asking.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, question | wrong)
            assert refused.code == ResponseCode.SYSTEM_ERROR
            assert remark in (refused.remark or "")
