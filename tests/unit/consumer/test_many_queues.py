"""A member of a group with thousands of queues."""

from __future__ import annotations

import asyncio
import time

from rocketapp.wire.record import Message
from tests.unit.consumer.fake_cluster import FakeCluster, consumed
from tests.unit.cpu import cheapest
from tests.unit.scripted import in_virtual_time


def test_a_stop_does_not_look_at_all_queues_for_each_of_them() -> None:
    spent = 0.0

    async def handle(_: Message) -> None: ...

    @in_virtual_time
    async def start_and_stop() -> None:
        nonlocal spent
        cluster = FakeCluster()
        await cluster.start()
        cluster.create("topic", queues=2000)
        member = await cluster.member(consumed(handle)).start()
        await asyncio.sleep(10)
        began = time.process_time()
        assert await member.stop()
        spent = time.process_time() - began
        await cluster.stop()

    def stop() -> float:
        start_and_stop()
        return spent

    assert cheapest(stop, within=1.5) < 1.5
