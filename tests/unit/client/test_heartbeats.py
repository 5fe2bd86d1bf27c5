"""Brokers are dialled again for as long as that makes sense."""

from __future__ import annotations

import asyncio
from random import Random

from rocketapp.client.heartbeats import Heartbeats
from rocketapp.tasks import Tasks
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.pool import Pool
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.clients import Heartbeat
from tests.unit.scripted import Events, ScriptedServer, eventually, in_virtual_time, ok

BROKER = "10.0.0.1:10911"


def heartbeats_and_pool(network: MemoryNetwork) -> tuple[Heartbeats, Pool]:
    """Those of a producer; a lost broker is dialled again, as the client does it."""
    heartbeats = Heartbeats(
        beat=lambda: Heartbeat("client", ("producers",), ()),
        addresses=lambda: [BROKER],
        interval=30.0,
        timeout=3.0,
        observe=Events(),
        unreachable=lambda address: None,
    )
    pool = Pool(
        dial=network.dial,
        dial_timeout=3.0,
        serve=None,
        max_frame_bytes=1 << 20,
        random=Random(1),
        greet=heartbeats.greet,
        on_lost=lambda address, reason: heartbeats.rejoin(address),
    )
    heartbeats.use(pool)
    return heartbeats, pool


@in_virtual_time
async def test_a_broker_that_ends_connections_as_soon_as_they_are_greeted_is_dialled_until_one_stays() -> None:
    server = ScriptedServer(MemoryNetwork(), BROKER)
    heartbeats, pool = heartbeats_and_pool(server.network)

    cuts = Tasks()

    async def cut(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        server.network.cut(BROKER)

    def last_words(command: Command) -> Command:
        cuts.start(cut(len(server.asked)), "cut")  # later each time, by one turn of the loop
        return ok(command)

    server.answers[RequestCode.HEART_BEAT] = last_words
    await server.start()
    heartbeats.rejoin(BROKER)
    await eventually(lambda: len(server.asked) == 12, 30.0)
    server.answers[RequestCode.HEART_BEAT] = ok
    await eventually(lambda: pool.peek(BROKER) is not None)
    assert len(server.asked) == 13
    await heartbeats.stop()
    await pool.close()


@in_virtual_time
async def test_a_route_that_arrives_while_the_client_stops_starts_no_dial() -> None:
    # A dial of a closed pool fails at once: trying again for ever would never let the loop go on.
    heartbeats, pool = heartbeats_and_pool(MemoryNetwork())
    await heartbeats.stop()
    await pool.close()
    heartbeats.rejoin(BROKER)
    assert not [task for task in asyncio.all_tasks() if task.get_name() == f"rejoin {BROKER}"]
