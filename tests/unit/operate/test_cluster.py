"""What the cluster tells of a group."""

from __future__ import annotations

import asyncio

import pytest

from rocketapp.admin.topics import create_topic
from rocketapp.operate.cluster import ClusterInspector
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.requests.offsets import CommitRequest
from tests.unit.admin.stage import stage
from tests.unit.scripted import in_virtual_time


@in_virtual_time
async def test_many_queues_of_a_broker_that_is_far_away_are_asked_for_at_once() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=256)
        for _ in range(3):
            await on.client.send("orders", queue_id=255)
        on.broker.network.slowness = 0.05
        began = asyncio.get_running_loop().time()
        state = await ClusterInspector(on.cluster.client, 5.0).group("billing", ["orders"])
        assert asyncio.get_running_loop().time() - began < 3.0
        assert sorted(one.queue.queue_id for one in state.queues) == list(range(256))
        assert [one.end for one in state.queues if one.queue.queue_id == 255] == [3]


@in_virtual_time
@pytest.mark.parametrize(("runs", "mend"), [(False, "start the app: rocketapp run"), (True, "its log says why")])
async def test_a_group_without_members_is_mended_by_starting_the_app_unless_it_runs(runs: bool, mend: str) -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=2)
        state = await ClusterInspector(on.cluster.client, 5.0, runs=runs).group("billing", ["orders"])
        (finding,) = state.findings
        assert finding.text == "group billing has no members: nothing consumes its topics"
        assert mend in finding.mend


@in_virtual_time
@pytest.mark.parametrize(("count", "says"), [(1, "and 1 message waits"), (2, "and 2 messages wait")])
async def test_what_waits_for_a_group_without_members_is_counted(count: int, says: str) -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=1)
        request = CommitRequest("billing", "orders", 0, 0)
        await on.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, request.to_fields())
        for _ in range(count):
            await on.client.send("orders", queue_id=0)
        state = await ClusterInspector(on.cluster.client, 5.0).group("billing", ["orders"])
        (finding,) = state.findings
        assert finding.text == f"group billing has no members: nothing consumes its topics, {says}"


@in_virtual_time
async def test_a_committed_offset_beyond_the_end_is_said_with_both_and_the_mend() -> None:
    async with stage() as on:
        await create_topic(on.cluster, "orders", queues=2)
        for queue_id in (0, 1):
            request = CommitRequest("billing", "orders", queue_id, 50)
            await on.client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, request.to_fields())
        for _ in range(10):
            await on.client.send("orders", queue_id=0)
        state = await ClusterInspector(on.cluster.client, 5.0).group("billing", ["orders"])
        found = [one for one in state.findings if "beyond" in one.text]
        assert sorted(one.text for one in found) == [
            f"group billing: orders@broker-a:{queue_id} is committed up to offset 50, beyond the broker's end {end}"
            for queue_id, end in ((0, 10), (1, 0))
        ]
        assert all(one.needs_person for one in found)
        assert all("rocketapp offset reset billing orders --to first" in one.mend for one in found)
