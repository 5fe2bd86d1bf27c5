"""What one way of sending does to another: stops beside probes of silent brokers."""

from __future__ import annotations

import asyncio

from rocketapp.model.outgoing import Outgoing
from tests.unit.producer.producing import producing
from tests.unit.scripted import Cluster, in_virtual_time, outcome


@in_virtual_time
async def test_a_send_that_outlives_its_producer_leaves_no_probe_behind() -> None:
    cluster = Cluster()
    async with producing(cluster, send_timeout=30.0) as producer:
        await producer.send(Outgoing(topic="t", body=b"0"))
        cluster.network.hold(cluster.brokers[0].address)
        late = asyncio.ensure_future(producer.send(Outgoing(topic="t", body=b"1")))
        await asyncio.sleep(0.1)
        await producer.stop()
        cluster.network.cut(cluster.brokers[0].address)
        assert await outcome(late)
        assert [task for task in asyncio.all_tasks() if "probe" in task.get_name()] == []
