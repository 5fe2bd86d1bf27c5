"""Each conversation asks the right thing, and never takes a failure for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rocketapp.client.calls import admin, clients, locks, messages, offsets, pull
from rocketapp.client.calls.send import send_back
from rocketapp.client.name_servers import cluster_info, get_route, topic_list
from rocketapp.errors import BrokerError, KeysRefused, ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.admin import TopicConfig
from rocketapp.wire.requests.locks import LockBody, encode_locked
from rocketapp.wire.requests.messages import QueryRequest
from rocketapp.wire.requests.offsets import CommitRequest, OffsetResponse, SearchOffsetRequest
from rocketapp.wire.requests.pull import PullRequest, PullResponse
from rocketapp.wire.requests.send_back import SendBackRequest
from tests.unit.scripted import ScriptedServer, in_virtual_time, ok, outcome, refuse

QUEUE = MessageQueue("t", "broker-a", 3)
ADDRESS = "10.0.0.1:10911"


async def conversation() -> tuple[ScriptedServer, Connection]:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    connection = Connection(serve=None, max_frame_bytes=1 << 20)
    connection.attach(await server.network.dial(ADDRESS, connection, 3.0))
    return server, connection


def offset_of(value: int) -> Callable[[Command], Command]:
    return lambda command: Command.response(command, 0, fields=OffsetResponse(value).to_fields())


CALLS: list[Callable[[Connection], Awaitable[Any]]] = [
    lambda connection: get_route(connection, "t", 1.0),
    lambda connection: topic_list(connection, 1.0),
    lambda connection: cluster_info(connection, 1.0),
    lambda connection: admin.topic_config(connection, "t", 1.0),
    lambda connection: admin.put_topic(connection, TopicConfig("t"), 1.0),
    lambda connection: admin.topic_stats(connection, "t", 1.0),
    lambda connection: admin.groups_of_topic(connection, "t", 1.0),
    lambda connection: admin.groups(connection, 1.0),
    lambda connection: admin.members(connection, "g", 1.0),
    lambda connection: admin.consume_stats(connection, "g", 1.0),
    lambda connection: admin.broker_config(connection, 1.0),
    lambda connection: admin.reset_offset(connection, "g", QUEUE, 5, 1.0),
    lambda connection: messages.query(connection, QueryRequest("t", "k"), 1.0),
    lambda connection: clients.member_list(connection, "g", 1.0),
    lambda connection: clients.unregister(connection, "me", 1.0, consumer_group="g"),
    lambda connection: offsets.query(connection, "g", QUEUE, 1.0),
    lambda connection: offsets.commit(connection, "g", QUEUE, 5, 1.0),
    lambda connection: offsets.max_offset(connection, QUEUE, 1.0),
    lambda connection: offsets.min_offset(connection, QUEUE, 1.0),
    lambda connection: offsets.search(connection, QUEUE, 1.0, 1.0),
    lambda connection: locks.lock(connection, "g", "me", [QUEUE], 1.0),
    lambda connection: locks.unlock(connection, "g", "me", [QUEUE], 1.0),
    lambda connection: send_back(connection, SendBackRequest(1, "g", 3, "id", "t", 16), 1.0),
]


@pytest.mark.parametrize("call", CALLS)
@in_virtual_time
async def test_a_refusal_is_an_error_with_code_text_and_address(call: Callable[[Connection], Awaitable[Any]]) -> None:
    server, connection = await conversation()
    for code in RequestCode:
        server.answers[code] = refuse(1, "no consumer for this group, g")
    error = await outcome(call(connection))
    assert isinstance(error, BrokerError)
    assert (error.code, error.remark, error.address) == (1, "no consumer for this group, g", ADDRESS)


@in_virtual_time
async def test_only_code_22_means_that_a_group_has_no_offset() -> None:
    server, connection = await conversation()
    server.answers[RequestCode.QUERY_CONSUMER_OFFSET] = refuse(22)
    assert (await offsets.query(connection, "g", QUEUE, 1.0)).offset is None
    server.answers[RequestCode.QUERY_CONSUMER_OFFSET] = offset_of(0)
    assert (await offsets.query(connection, "g", QUEUE, 1.0)).offset == 0
    assert server.asked[-1].fields == {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "3",
        "setZeroIfNotFound": "false",
    }
    for nonsense in (ok, offset_of(-1)):
        server.answers[RequestCode.QUERY_CONSUMER_OFFSET] = nonsense
        assert isinstance(await outcome(offsets.query(connection, "g", QUEUE, 1.0)), ProtocolError)


@in_virtual_time
async def test_a_commit_is_confirmed() -> None:
    server, connection = await conversation()
    server.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = ok
    await offsets.commit(connection, "g", QUEUE, 42, 1.0)
    (asked,) = server.asked
    assert not asked.is_one_way and CommitRequest.from_fields(asked.fields).offset == 42


@in_virtual_time
async def test_the_limits_of_a_queue_and_the_offset_of_a_time() -> None:
    server, connection = await conversation()
    server.answers[RequestCode.GET_MAX_OFFSET] = offset_of(9)
    server.answers[RequestCode.GET_MIN_OFFSET] = offset_of(2)
    server.answers[RequestCode.SEARCH_OFFSET_BY_TIMESTAMP] = offset_of(5)
    assert await offsets.max_offset(connection, QUEUE, 1.0) == 9
    assert await offsets.min_offset(connection, QUEUE, 1.0) == 2
    assert await offsets.search(connection, QUEUE, 1_795_000_000.25, 1.0) == 5
    assert SearchOffsetRequest.from_fields(server.asked[-1].fields) == SearchOffsetRequest("t", 3, 1_795_000_000_250)


@pytest.mark.parametrize(("code", "status"), [(0, "found"), (19, "no_new"), (20, "no_match"), (21, "illegal")])
@in_virtual_time
async def test_a_pull_tells_what_happened_and_where_to_go_on(code: int, status: str) -> None:
    server, connection = await conversation()
    server.answers[RequestCode.PULL_MESSAGE] = lambda command: Command.response(
        command, code, fields=PullResponse(1, 40, 7, 90).to_fields(), body=b"records"
    )
    request = PullRequest("g", "t", 3, 33, 32, 6, 0, 15_000, 1)
    future = pull.start(connection, request, 30.0)
    assert isinstance(future, asyncio.Future)
    assert pull.read(await future) == (status, 40, 7, 90, 1, b"records")
    assert PullRequest.from_fields(server.asked[0].fields) == request


@in_virtual_time
async def test_a_pull_that_is_refused_is_an_error() -> None:
    server, connection = await conversation()
    server.answers[RequestCode.PULL_MESSAGE] = refuse(24, "the consumer's group info not exist")
    response = await pull.start(connection, PullRequest("g", "t", 3, 33, 32, 6, 0, 15_000, 1), 30.0)
    with pytest.raises(BrokerError, match="code 24: the consumer's group info not exist"):
        pull.read(response, connection.peer)


@in_virtual_time
async def test_locks_tell_which_queues_are_ours() -> None:
    server, connection = await conversation()
    other = QUEUE._replace(queue_id=4)
    server.answers[RequestCode.LOCK_BATCH_MQ] = lambda command: Command.response(
        command, 0, body=encode_locked([QUEUE])
    )
    server.answers[RequestCode.UNLOCK_BATCH_MQ] = ok
    assert await locks.lock(connection, "g", "me", [QUEUE, other], 1.0) == {QUEUE}
    await locks.unlock(connection, "g", "me", [QUEUE], 1.0)
    assert LockBody.decode(server.asked[0].body) == LockBody("g", "me", [QUEUE, other])
    assert LockBody.decode(server.asked[1].body) == LockBody("g", "me", [QUEUE])
    assert [asked.fields for asked in server.asked] == [{}, {}]  # as Java sends what its body says


@in_virtual_time
async def test_a_missing_topic_is_no_error_and_members_come_as_they_are() -> None:
    server, connection = await conversation()
    server.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = refuse(17, "No topic route info")
    assert await get_route(connection, "t", 1.0) is None
    server.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = lambda command: Command.response(
        command, 0, body=b'{"consumerIdList":["b","a"]}'
    )
    assert await clients.member_list(connection, "g", 1.0) == ["b", "a"]


@pytest.mark.parametrize(
    ("code", "refusal", "call", "answer"),
    [
        (RequestCode.GET_TOPIC_CONFIG, 17, lambda one: admin.topic_config(one, "t", 1.0), None),
        (RequestCode.GET_CONSUMER_CONNECTION_LIST, 206, lambda one: admin.members(one, "g", 1.0), None),
        (RequestCode.VIEW_MESSAGE_BY_ID, 1, lambda one: messages.view(one, 7, 1.0), None),
        (RequestCode.QUERY_MESSAGE, 22, lambda one: messages.query(one, QueryRequest("t", "k"), 1.0), b""),
    ],
    ids=["no such topic", "no member", "no message there", "no message with it"],
)
@in_virtual_time
async def test_what_is_not_there_is_an_answer(
    code: int, refusal: int, call: Callable[[Connection], Awaitable[Any]], answer: Any
) -> None:
    server, connection = await conversation()
    server.answers[code] = refuse(refusal)
    assert await call(connection) == answer
    server.answers[code] = refuse(16)
    assert isinstance(await outcome(call(connection)), BrokerError)


@pytest.mark.parametrize(("name", "found"), [("t", TopicConfig("t", 3, 3)), ("absent", None)])
@in_virtual_time
async def test_a_broker_that_tells_all_its_topics_at_once_is_asked_for_one(
    name: str, found: TopicConfig | None
) -> None:
    server, connection = await conversation()
    server.answers[RequestCode.GET_TOPIC_CONFIG] = refuse(3, "request type 351 not supported")
    body = b'{"dataVersion":{},"topicConfigTable":{"t":{"topicName":"t","readQueueNums":3,"writeQueueNums":3}}}'
    server.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = lambda one: Command.response(one, 0, body=body)
    assert await admin.topic_config(connection, name, 1.0) == found


@in_virtual_time
async def test_topics_of_a_broker_that_are_no_table_are_an_error() -> None:
    server, connection = await conversation()
    server.answers[RequestCode.GET_TOPIC_CONFIG] = refuse(3)
    for body in (b"[]", b'{"topicConfigTable":{"t":{}}}', b""):
        server.answers[RequestCode.GET_ALL_TOPIC_CONFIG] = lambda one, body=body: Command.response(one, 0, body=body)
        assert isinstance(await outcome(admin.topic_config(connection, "t", 1.0)), ProtocolError)


@pytest.mark.parametrize("unique", [False, True])
@in_virtual_time
async def test_a_broker_that_signs_a_lookup_without_one_field_is_asked_without_it(unique: bool) -> None:
    server, connection = await conversation()
    wrong = refuse(1, "org.apache.rocketmq.acl.common.AclException: Check signature failed for accessKey=AK")

    def answer(asked: Command) -> Command:
        return (
            wrong(asked) if "_UNIQUE_KEY_QUERY" in (asked.fields or {}) else Command.response(asked, 0, body=b"found")
        )

    server.answers[RequestCode.QUERY_MESSAGE] = answer
    assert await messages.query(connection, QueryRequest("t", "k", unique=unique), 1.0) == b"found"
    server.answers[RequestCode.QUERY_MESSAGE] = wrong
    assert isinstance(await outcome(messages.query(connection, QueryRequest("t", "k"), 1.0)), KeysRefused)
