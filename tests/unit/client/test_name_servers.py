"""Any name server will do; one that works is kept."""

from __future__ import annotations

import asyncio
from random import Random

from rocketapp.client.name_servers import NameServers, parse_name_servers
from rocketapp.errors import TransportError
from rocketapp.model.route import BrokerData
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.pool import Pool
from rocketapp.wire.command import Command
from rocketapp.wire.requests.routes import encode_cluster_info, encode_topic_list
from tests.unit.scripted import Cluster, ScriptedNameServer, in_virtual_time, outcome, refuse

FIRST, SECOND = "10.0.0.1:9876", "10.0.0.2:9876"


def name_servers(network: MemoryNetwork, *addresses: str, seed: int = 0) -> NameServers:
    pool = Pool(dial=network.dial, dial_timeout=3.0, max_frame_bytes=1 << 20, random=Random(seed))
    return NameServers(addresses, pool=pool, timeout=3.0, random=Random(seed))


def test_addresses_are_separated_by_semicolons_and_counted_once() -> None:
    assert parse_name_servers("a:1; b:2;a:1;;") == ["a:1", "b:2"]
    assert parse_name_servers("") == []


@in_virtual_time
async def test_one_is_kept_while_it_works_and_the_next_one_taken_when_it_fails() -> None:
    cluster = Cluster()
    both = [await ScriptedNameServer(cluster.network, address).start() for address in (FIRST, SECOND)]
    assert isinstance(both[0], ScriptedNameServer)
    servers = name_servers(cluster.network, FIRST, SECOND)
    for _ in range(5):
        assert await servers.route("t") is None
    asked = [len(server.asked) for server in both]
    assert sorted(asked) == [0, 5]
    await both[asked.index(5)].stop()
    assert await servers.route("t") is None
    assert await servers.route("t") is None
    assert len(both[asked.index(0)].asked) == 2


@in_virtual_time
async def test_clients_spread_over_the_name_servers() -> None:
    first = {repr(name_servers(MemoryNetwork(), FIRST, SECOND, seed=seed)) for seed in range(20)}
    assert len(first) == 2


@in_virtual_time
async def test_one_that_answers_nonsense_is_passed_over() -> None:
    network = MemoryNetwork()
    for address in (FIRST, SECOND):
        server = await ScriptedNameServer(network, address).start()
        if address == FIRST:
            server.answers[105] = refuse(1, "not ready")
    for seed in range(4):
        assert await name_servers(network, FIRST, SECOND, seed=seed).route("t") is None


@in_virtual_time
async def test_when_no_server_answers_every_address_is_named_in_bounded_time() -> None:
    network = MemoryNetwork()
    network.hold(SECOND)
    error = await outcome(name_servers(network, FIRST, SECOND).connect())
    assert isinstance(error, TransportError)
    assert f"{FIRST} says Connection refused" in str(error)
    assert f"{SECOND} says no connection within 3 s" in str(error)
    assert asyncio.get_running_loop().time() < 4.5


@in_virtual_time
async def test_one_address_alone_and_none_at_all() -> None:
    error = await outcome(name_servers(MemoryNetwork(), FIRST).connect())
    assert str(error) == f"{FIRST}: Connection refused"
    assert "client.name_server" in str(await outcome(name_servers(MemoryNetwork()).connect()))


@in_virtual_time
async def test_topics_and_brokers_are_asked_of_one_that_works() -> None:
    network = MemoryNetwork()
    broker = BrokerData("c", "broker-a", {0: "10.0.0.3:10911"})
    for address in (FIRST, SECOND):
        server = await ScriptedNameServer(network, address).start()
        if address == FIRST:
            server.answers[206] = server.answers[106] = refuse(1, "not ready")
        else:
            server.answers[206] = lambda command: Command.response(command, 0, body=encode_topic_list(["t"]))
            server.answers[106] = lambda command: Command.response(command, 0, body=encode_cluster_info([broker]))
    for seed in range(4):
        servers = name_servers(network, FIRST, SECOND, seed=seed)
        assert await servers.topics() == ["t"]
        assert await servers.brokers() == (broker,)
