"""Brokers are dialled again for as long as that makes sense."""

from __future__ import annotations

import asyncio
from random import Random

from rocketapp.client.heartbeats import Heartbeats
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.pool import Pool
from rocketapp.wire.requests.clients import Heartbeat
from tests.unit.scripted import Events, in_virtual_time

BROKER = "10.0.0.1:10911"


@in_virtual_time
async def test_a_route_that_arrives_while_the_client_stops_starts_no_dial() -> None:
    # A dial of a closed pool fails at once: trying again for ever would never let the loop go on.
    heartbeats = Heartbeats(
        beat=lambda: Heartbeat("client", ("producers",), ()),
        addresses=lambda: [BROKER],
        interval=30.0,
        timeout=3.0,
        observe=Events(),
        unreachable=lambda address: None,
    )
    pool = Pool(dial=MemoryNetwork().dial, dial_timeout=3.0, serve=None, max_frame_bytes=1 << 20, random=Random(1))
    heartbeats.use(pool)
    await heartbeats.stop()
    await pool.close()
    heartbeats.rejoin(BROKER)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == f"rejoin {BROKER}"]
