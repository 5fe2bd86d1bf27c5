"""Topics, groups, offsets and messages, as administrators see them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from rocketapp.admin.cluster import AdminError
from rocketapp.admin.dead_letters import as_delivered, counts, find, newest, replayed_properties
from rocketapp.admin.groups import ShownGroup, list_groups, show_group
from rocketapp.admin.messages import find_by_id, find_by_key
from rocketapp.admin.offsets import (
    Target,
    apply,
    plan_reset,
    show_offsets,
)
from rocketapp.admin.topics import create_topic, list_topics, show_topic
from rocketapp.errors import NoRouteError, RequestTimeoutError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.subscription import SubscriptionData
from rocketapp.transport.stream import split_address
from rocketapp.wire import properties as names
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.offsets import CommitRequest
from rocketapp.wire.requests.running_info import RunningInfo
from rocketapp.wire.requests.statistics import ConnectedClient, ConsumedOffset, ConsumerConnection
from tests.unit.admin.stage import Stage, stage
from tests.unit.scripted import ScriptedServer, in_virtual_time, outcome


async def commit(on: Stage, group: str, topic: str, queue_id: int, offset: int) -> None:
    request = CommitRequest(group, topic, queue_id, offset)
    await on.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, request.to_fields())


@in_virtual_time
async def test_topics_are_listed_without_those_of_the_system() -> None:
    async with stage() as on:
        assert await create_topic(on.cluster, "orders", queues=3) == ["broker-a"]
        await on.bury("billing", 1)
        await on.client.heartbeat("billing", "orders")
        assert [topic.name for topic in await list_topics(on.cluster)] == ["orders"]
        kinds = {topic.name: topic.kind for topic in await list_topics(on.cluster, every=True)}
        assert kinds["%DLQ%billing"] == "dlq"
        assert kinds["%RETRY%billing"] == "retry"
        assert kinds["TBW102"] == kinds["broker-a"] == "system"


@in_virtual_time
async def test_a_topic_that_one_of_two_brokers_lacks_is_created_there() -> None:
    async with stage() as on:
        assert await create_topic(on.cluster, "orders", queues=3) == ["broker-a"]
        server = await ScriptedServer(on.broker.network, "10.0.0.9:10911").start()
        server.answers[RequestCode.GET_TOPIC_CONFIG] = lambda asked: Command.response(
            asked, ResponseCode.TOPIC_NOT_EXIST
        )
        server.answers[RequestCode.UPDATE_AND_CREATE_TOPIC] = lambda asked: Command.response(asked, 0)
        on.cluster.masters["broker-b"] = server.address
        assert await create_topic(on.cluster, "orders", queues=3) == ["broker-b"]
        assert await create_topic(on.cluster, "orders", queues=3, broker="broker-a") == []


@in_virtual_time
async def test_a_look_goes_without_a_broker_that_does_not_answer_and_waits_for_it_once() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=2)
        for number in range(3):
            await on.client.send("orders", queue_id=0)
            await commit(on, f"group-{number}", "orders", 0, 1)
        frozen = await ScriptedServer(on.broker.network, "10.0.0.9:10911").start()
        on.cluster.masters["broker-b"] = frozen.address
        began = asyncio.get_running_loop().time()
        assert [one.name for one in await list_groups(on.cluster)] == ["group-0", "group-1", "group-2"]
        assert (await show_group(on.cluster, "group-0")).lag == 2
        assert (await show_topic(on.cluster, "orders")).messages == 3
        assert asyncio.get_running_loop().time() - began < 1.1 * on.cluster.timeout
        assert list(on.cluster.silent) == ["broker-b"]
        # What is changed by it is not done without that broker: members may be known there alone.
        plan = await outcome(plan_reset(on.cluster, "group-0", "orders", "first"))
        assert isinstance(plan, RequestTimeoutError)
        on.cluster.masters = {"broker-b": frozen.address}
        assert isinstance(await outcome(list_groups(on.cluster)), RequestTimeoutError)


@in_virtual_time
async def test_a_topic_is_shown_with_its_queues_and_groups() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=2)
        for _ in range(3):
            await on.client.send("orders", queue_id=1)
        await commit(on, "billing", "orders", 1, 2)
        shown = await show_topic(on.cluster, "orders")
        assert [(queue.queue_id, held.max_offset) for queue, held in shown.offsets.items()] == [(0, 0), (1, 3)]
        assert (shown.messages, shown.groups) == (3, ("billing",))
        assert shown.configs["broker-a"].read_queues == 2
        assert isinstance(await outcome(show_topic(on.cluster, "missing")), NoRouteError)


@in_virtual_time
async def test_of_a_topic_only_its_own_brokers_are_asked() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=2)
        other = await ScriptedServer(on.broker.network, "10.0.0.9:10911").start()
        on.cluster.masters["broker-b"] = other.address
        assert list((await show_topic(on.cluster, "orders")).configs) == ["broker-a"]
        assert other.asked == []


@in_virtual_time
async def test_a_group_is_shown_with_members_and_lag() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=2)
        for _ in range(5):
            await on.client.send("orders", queue_id=0)
        await on.client.heartbeat("billing", "orders", tags="paid")
        await commit(on, "billing", "orders", 0, 2)
        shown = await show_group(on.cluster, "billing")
        assert [member.client_id for member in shown.members] == ["client"]
        assert [(one.topic, one.expression) for one in shown.subscriptions] == [("orders", "paid")]
        assert shown.lag == 3
        assert [(one.name, len(one.members), one.lag) for one in await list_groups(on.cluster)] == [("billing", 1, 3)]
        assert isinstance(await outcome(show_group(on.cluster, "missing")), NoRouteError)


def test_no_broker_knows_the_lag_of_a_broadcast_group() -> None:
    offsets = {MessageQueue("prices", "broker-a", 0): ConsumedOffset(5, 0, 0, 0)}
    assert ShownGroup("screens", (), (), "CLUSTERING", offsets).lag == 5
    assert ShownGroup("screens", (), (), "BROADCASTING", offsets).lag is None


@pytest.mark.parametrize(("theirs", "differ"), [("b||a", False), ("b || c", True)])
def test_members_subscribe_differently_when_they_want_other_messages(theirs: str, differ: bool) -> None:
    @in_virtual_time
    async def story() -> None:
        async with stage() as on:
            server = await ScriptedServer(on.broker.network, "10.0.0.9:10911").start()
            members = tuple(ConnectedClient(name, "10.0.0.7:1", "JAVA", 399) for name in ("one", "other"))
            known = ConsumerConnection(members, (), "", "CLUSTERING", "")
            wants = {"one": ("a || b", "%RETRY%billing"), "other": (theirs, "")}

            def tell(command: Command) -> Command:
                assert command.fields is not None
                expression, retry = wants[command.fields["clientId"]]
                tags = frozenset(tag.strip() for tag in expression.split("||"))
                said = [SubscriptionData("orders", expression, tags)]
                said += [SubscriptionData(retry, "*", frozenset())] if retry else []
                return Command.response(command, 0, body=RunningInfo({}, tuple(said)).encode())

            server.answers[203] = lambda command: Command.response(command, 0, body=known.encode())
            server.answers[208] = lambda command: Command.response(command, 0, body=b'{"offsetTable":{}}')
            server.answers[307] = tell
            on.cluster.masters = {"broker-a": server.address}
            shown = await show_group(on.cluster, "billing")
            assert shown.told["other"] == {"orders": theirs}
            assert shown.differ is differ

    story()


@in_virtual_time
async def test_nothing_committed_is_told_apart_from_zero() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=2)
        await on.client.send("orders", queue_id=0)
        await commit(on, "billing", "orders", 1, 0)
        shown = await show_offsets(on.cluster, "billing", "orders")
        assert [(one.committed, one.lag) for one in shown] == [(None, 1), (0, 0)]
        assert {one.queue.topic for one in await show_offsets(on.cluster, "billing")} == {"orders"}


@pytest.mark.parametrize(
    ("target", "after"),
    [
        ("first", [0, 0]),
        ("last", [4, 0]),
        (datetime(2100, 1, 1, tzinfo=UTC), [4, 0]),
        (datetime(2000, 1, 1, tzinfo=UTC), [0, 0]),
    ],
    ids=["first", "last", "later", "earlier"],
)
def test_a_plan_says_from_where_to_where_and_is_set_as_it_was_shown(target: Target, after: list[int]) -> None:
    @in_virtual_time
    async def story() -> None:
        async with stage() as on:
            await create_topic(on.cluster, "orders", queues=2)
            for _ in range(4):
                await on.client.send("orders", queue_id=0)
            await commit(on, "billing", "orders", 0, 3)
            plan = await plan_reset(on.cluster, "billing", "orders", target)
            assert [(move.before, move.after) for move in plan.moves] == list(zip([3, None], after, strict=True))
            assert [one.committed for one in await show_offsets(on.cluster, "billing", "orders")] == [3, None]
            await apply(on.cluster, plan)
            assert [one.committed for one in await show_offsets(on.cluster, "billing", "orders")] == after

    story()


@in_virtual_time
async def test_an_offset_that_a_queue_does_not_hold_is_refused_and_one_queue_may_be_chosen() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=2)
        for _ in range(4):
            await on.client.send("orders", queue_id=0)
        refused = await outcome(plan_reset(on.cluster, "billing", "orders", 3))
        assert isinstance(refused, ValueError)
        assert "orders@broker-a:1 holds the offsets 0 to 0, not 3" in str(refused)
        plan = await plan_reset(on.cluster, "billing", "orders", 3, only=frozenset({0}))
        assert [(move.queue.queue_id, move.after) for move in plan.moves] == [(0, 3)]


@in_virtual_time
async def test_members_are_moved_by_their_broker() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=1)
        await on.client.heartbeat("billing", "orders")
        await commit(on, "billing", "orders", 0, 0)
        await on.client.send("orders", queue_id=0)
        plan = await plan_reset(on.cluster, "billing", "orders", "last")
        assert [member.client_id for member in plan.members] == ["client"]
        await apply(on.cluster, plan)
        await commit(on, "billing", "orders", 0, 0)  # of what it had before it hears of the reset
        assert [one.committed for one in await show_offsets(on.cluster, "billing", "orders")] == [1]


@pytest.mark.parametrize("option", ["useServerSideResetOffset=false", "brokerName=broker-a"])
def test_members_that_a_broker_would_only_tell_are_not_overruled(option: str) -> None:
    @in_virtual_time
    async def story() -> None:
        async with stage() as on:
            await create_topic(on.cluster, "orders", queues=1)
            await on.client.heartbeat("billing", "orders")
            await commit(on, "billing", "orders", 0, 0)
            plan = await plan_reset(on.cluster, "billing", "orders", "last")
            server = await ScriptedServer(on.broker.network, "10.0.0.9:10911").start()
            connections = ConsumerConnection((ConnectedClient("client", "10.0.0.7:1", "JAVA", 399),), (), "", "", "")
            server.answers[203] = lambda command: Command.response(command, 0, body=connections.encode())
            server.answers[26] = lambda command: Command.response(command, 0, body=option.encode())
            on.cluster.masters["broker-a"] = server.address
            refused = await outcome(apply(on.cluster, plan))
            assert isinstance(refused, AdminError)
            assert str(refused).endswith("and broker broker-a cannot move them: stop them, then reset")
            assert 222 not in server.codes()

    story()


@in_virtual_time
async def test_a_group_that_keeps_its_offsets_itself_is_not_said_to_be_moved() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=1)
        server = await ScriptedServer(on.broker.network, "10.0.0.9:10911").start()
        told = ConsumerConnection((ConnectedClient("client", "10.0.0.7:1", "JAVA", 399),), (), "", "BROADCASTING", "")
        server.answers[203] = lambda command: Command.response(command, 0, body=told.encode())
        on.cluster.masters["broker-a"] = server.address
        refused = await outcome(plan_reset(on.cluster, "billing", "orders", "first"))
        assert isinstance(refused, AdminError)
        assert "what is set here would change nothing" in str(refused)


@in_virtual_time
async def test_a_reset_that_fails_half_way_says_which_queues_are_set() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=3)
        plan = await plan_reset(on.cluster, "billing", "orders", "first")
        server = await ScriptedServer(on.broker.network, "10.0.0.9:10911").start()

        def commit_one(command: Command) -> Command:
            assert command.fields is not None
            code = 1 if command.fields["queueId"] == "0" else 0
            return Command.response(command, code, remark="the disk is full")

        server.answers[203] = lambda command: Command.response(command, ResponseCode.CONSUMER_NOT_ONLINE)
        server.answers[15] = commit_one
        on.cluster.masters["broker-a"] = server.address
        unfinished = await outcome(apply(on.cluster, plan))
        assert isinstance(unfinished, AdminError)
        assert str(unfinished).startswith("2 queues of group billing are set, and orders@broker-a:0 are not (")
        assert "the disk is full" in str(unfinished)
        assert server.codes().count(15) == 3


@in_virtual_time
async def test_a_message_is_found_at_its_place() -> None:
    async with stage() as on:
        answer = await on.client.send("orders", b"hello", queue_id=2)
        assert answer.fields is not None
        (message,) = await find_by_id(on.cluster, answer.fields["msgId"])
        assert (message.body, str(message.queue)) == (b"hello", "orders@broker-a:2")
        assert await find_by_id(on.cluster, "7F000001000C06D1C4A40D4E5C5E0000") == []


@in_virtual_time
async def test_a_message_is_found_at_its_place_while_a_broker_of_the_same_port_is_away() -> None:
    async with stage() as on:
        answer = await on.client.send("orders", b"hello", queue_id=2)
        assert answer.fields is not None
        port = split_address(on.cluster.masters["broker-a"])[1]
        on.cluster.masters = {"broker-0": f"10.0.0.9:{port}", **on.cluster.masters}
        (message,) = await find_by_id(on.cluster, answer.fields["msgId"])
        assert message.body == b"hello"
        assert list(on.cluster.silent) == ["broker-0"]


@in_virtual_time
async def test_dead_letters_are_found_by_place_and_by_each_id() -> None:
    async with stage() as on:
        await on.bury("billing", 5)
        assert [one.message.body for one in await newest(on.cluster, "billing", 2)] == [b"4", b"3"]
        assert await counts(on.cluster) == [("billing", 5)]
        for wanted in ("broker-a:0:3", "ID3", "ORIGIN3"):
            letter = await find(on.cluster, "billing", wanted)
            assert letter is not None
            assert letter.message.body == b"3"
            assert (letter.place, letter.topic, letter.attempts) == ("broker-a:0:3", "orders", 17)
            assert letter.reason == "ValueError: no 3"
        assert await find(on.cluster, "billing", "ID7") is None
        assert await newest(on.cluster, "other", 2) == []


@in_virtual_time
async def test_a_dead_letter_goes_out_as_the_message_that_it_was() -> None:
    async with stage() as on:
        await on.bury("billing", 1)
        (letter,) = await newest(on.cluster, "billing", 1)
        to_group = dict(replayed_properties(letter))
        assert to_group[names.RETRY_TOPIC] == "orders"
        assert to_group["rocketapp.replayed_from"] == "%DLQ%billing@broker-a:0:0"
        assert (to_group["colour"], to_group[names.UNIQ_KEY], to_group[names.KEYS]) == ("red", "ID0", "order-0")
        assert not {"rocketapp.reason", "rocketapp.attempts", "rocketapp.exception"} & to_group.keys()
        message = as_delivered(letter, "billing")
        assert (message.topic, message.attempt) == ("orders", 1)


@in_virtual_time
async def test_every_copy_of_a_message_is_found_by_its_id_and_its_key() -> None:
    async with stage() as on:
        await on.bury("billing", 2)
        properties = names.encode({names.UNIQ_KEY: "ID1", names.KEYS: "order-1"}).decode()
        await on.client.send("orders", b"first", properties, queue_id=2)
        for found in (await find_by_id(on.cluster, "ID1"), await find_by_key(on.cluster, "order-1")):
            assert sorted(str(message.queue) for message in found) == ["%DLQ%billing@broker-a:0", "orders@broker-a:2"]
        (message,) = await find_by_key(on.cluster, "order-1", topic="orders")
        assert message.body == b"first"
