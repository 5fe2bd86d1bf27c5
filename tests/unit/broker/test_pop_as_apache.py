"""What Apache RocketMQ and its tools see of popped messages, and what it leaves of them when its store comes here."""

from __future__ import annotations

import asyncio
import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from rocketapp.broker.pop_checkpoints import REVIVE_GROUP, revive_topic
from rocketapp.broker.store.config_files import CONSUMER_OFFSETS, decode, encode
from rocketapp.broker.store.files import MemoryFiles, read_whole, replace_whole
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.layout import decode_record
from tests.unit.broker.asking import running
from tests.unit.broker.test_pop import INVISIBLE, Member, member, texts
from tests.unit.scripted import in_virtual_time


def written_by_apache(files: MemoryFiles, offsets: dict[str, dict[str, int]]) -> None:
    """Offsets of groups, and that its revive queues are read to their beginning: not where the log ended."""
    read: dict[str, Any] = {f"{revive_topic('DefaultCluster')}@{REVIVE_GROUP}": {str(queue): -1 for queue in range(8)}}
    table = decode(read_whole(files, CONSUMER_OFFSETS) or b"")
    replace_whole(files, CONSUMER_OFFSETS, encode({"dataVersion": table["dataVersion"], "offsetTable": read | offsets}))


@pytest.mark.parametrize("cluster", ["DefaultCluster", "others"])
@in_virtual_time
async def test_a_reset_in_apache_rocketmq_is_not_undone_by_what_was_popped_before(cluster: str) -> None:
    async with running() as broker:
        one = await member(broker)
        for body in b"ab":
            await one.client.send("orders", bytes([body]), queue_id=0)
        a, _ = await one.pop()
        await one.ack(a)
        await asyncio.sleep(6)  # offsets are saved every 5 s
        files = deepcopy(broker.files)
        written_by_apache(files, {"orders@billing": {"0": 0}})
    async with running(files, cluster=cluster) as broker:
        assert texts(await Member(await broker.client()).pop()) == ["a", "b"]


@in_virtual_time
async def test_what_was_popped_before_the_cluster_had_another_name_comes_again_unless_it_is_acknowledged() -> None:
    """Checkpoints lie in a topic with the name of the cluster, and the group's offset is behind them."""
    async with running() as broker:
        one = await member(broker)
        for body in b"abc":
            await one.client.send("orders", bytes([body]), queue_id=0)
        a, b, _ = await one.pop()
        await one.ack(a)
        for cluster in ("second", "third"):
            broker.config = replace(broker.config, cluster=cluster)
            await broker.restart()
        await Member(await broker.client()).ack(b)
        await asyncio.sleep(INVISIBLE + 1)
        assert texts(await Member(await broker.client()).pop()) == ["c"]


@in_virtual_time
async def test_what_is_acknowledged_after_the_cluster_got_another_name_does_not_come_again_after_a_kill() -> None:
    """The acknowledgement is in the topic of the new name, and the checkpoint in that of the old one."""
    async with running() as broker:
        (a,) = await (await member(broker, "a")).pop()
        broker.config = replace(broker.config, cluster="later")
        await broker.restart(killed=True)
        await Member(await broker.client()).ack(a)
        await broker.restart(killed=True)
        await asyncio.sleep(INVISIBLE + 1)
        assert await Member(await broker.client()).pop() == []


@in_virtual_time
async def test_a_retry_that_is_far_away_comes_although_the_cluster_has_another_name_then() -> None:
    """At a stop it becomes a timer, whose message is for the topic of the old name."""
    async with running() as broker:
        one = await member(broker, "a")
        (a,) = await one.pop()
        await one.hide(a, 1000)
        broker.config = replace(broker.config, cluster="others")
        await broker.restart()
        await asyncio.sleep(1100)
        assert texts(await Member(await broker.client()).pop()) == ["a"]


@in_virtual_time
async def test_retries_that_nobody_has_popped_count_as_backlog() -> None:
    async with running() as broker:
        one = await member(broker, "a")
        await one.pop()
        await asyncio.sleep(INVISIBLE + 1)
        stats = await one.client.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": "billing", "topic": ""})
        assert b'"topic":"%RETRY%billing_orders"}:{"brokerOffset":1,"consumerOffset":0' in stats.body


@in_virtual_time
async def test_a_retry_names_the_broker_that_stored_it_again_at_the_address_that_it_has_now() -> None:
    async with running() as broker:
        await (await member(broker, "a")).pop()
        broker.config = replace(broker.config, listen="[::1]:9877")
        await broker.restart()
        client = await broker.client()
        await asyncio.sleep(INVISIBLE + 1)
        record = decode_record((await client.pull("%RETRY%billing_orders")).body)
        here = b"\0" * 15 + b"\1", 9877
        assert (record.born_host, record.born_port) == (record.store_host, record.store_port) == here


@in_virtual_time
async def test_a_stop_leaves_what_is_popped_in_the_order_in_which_it_comes_again() -> None:
    """Apache RocketMQ goes through its revive queue in that order, and waits where something is not due."""
    async with running() as broker:
        one = await member(broker)
        for body in b"ab":
            await one.client.send("orders", bytes([body]), queue_id=0)
        a, b = await one.pop()
        await one.hide(a, 60)
        await one.hide(b, 30)
        await broker.restart()
        client = await broker.client()
        found = await client.messages(revive_topic("DefaultCluster"), queue_id=a.handle.revive_queue)
        assert [json.loads(message.body)["it"] for message in found[-2:]] == [30_000, 60_000]
