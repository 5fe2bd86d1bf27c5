"""Brokers are dialled again for as long as that makes sense."""

from __future__ import annotations

import asyncio
from random import Random

from rocketapp.client.heartbeats import Heartbeats
from rocketapp.client.members import Members
from rocketapp.client.name_servers import NameServers
from rocketapp.client.routes import RouteTable
from rocketapp.model.route import BrokerData, QueueData, TopicRoute
from rocketapp.state.route_cache import RouteCache
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.pool import Pool, PoolOwner
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from tests.unit.scripted import Events, ScriptedServer, eventually, in_virtual_time, ok

BROKER = "10.0.0.1:10911"


def heartbeats_and_pool(network: MemoryNetwork) -> tuple[Heartbeats, Pool]:
    """Those of a producer; a lost broker is dialled again, as the client does it."""
    members, cache = Members("client"), RouteCache(30.0)
    members.add_producer("producers")
    cache.watch("t", 0.0)
    cache.found("t", TopicRoute((QueueData("a", 4, 4, 6),), (BrokerData("C", "a", {0: BROKER}),)), 0.0)
    none = Pool(dial=network.dial, dial_timeout=3.0, max_frame_bytes=1 << 20, random=Random(1))
    servers = NameServers([], pool=none, timeout=3.0, random=Random(1))
    routes = RouteTable(servers, cache, changed=lambda: None, observe=Events(), random=Random(1))

    class Owner(PoolOwner):
        async def greet(self, address: str, connection: Connection) -> None:
            await heartbeats.greet(connection)

        def lost(self, address: str, reason: str) -> None:
            heartbeats.rejoin(address)

    pool = Pool(dial=network.dial, dial_timeout=3.0, max_frame_bytes=1 << 20, random=Random(1), owner=Owner())
    heartbeats = Heartbeats(members=members, routes=routes, pool=pool, interval=30.0, timeout=3.0, observe=Events())
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
async def test_a_broker_that_has_just_started_may_take_its_time_with_the_first_heartbeat() -> None:
    # On a connection that has ended it would be taken in all the same: a member that lives no more.
    server = ScriptedServer(MemoryNetwork(), BROKER)
    heartbeats, pool = heartbeats_and_pool(server.network)
    answers, began = Tasks(), asyncio.get_running_loop().time()

    async def answer(command: Command) -> None:
        await asyncio.sleep(20.0)
        server.connection().reply(ok(command))

    def later(command: Command) -> None:
        answers.start(answer(command), "answer")

    server.answers[RequestCode.HEART_BEAT] = later
    await server.start()
    heartbeats.rejoin(BROKER)
    await eventually(lambda: pool.peek(BROKER) is not None, 30.0)
    assert asyncio.get_running_loop().time() - began < 21.0
    assert len(server.asked) == 1
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
