"""The pool: one connection per address for all who ask, and a new one when the old one is gone."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from rocketapp.errors import ConnectError, RequestTimeoutError
from rocketapp.transport.connection import Connection
from rocketapp.transport.memory import MemoryNetwork
from rocketapp.transport.pool import Pool, PoolOwner
from rocketapp.transport.stream import Receiver, Stream
from rocketapp.transport.tls import Tls
from rocketapp.wire.command import Command
from tests.unit.scripted import ScriptedServer, eventually, in_virtual_time, ok, outcome, refuse

ADDRESS = "10.0.0.1:10911"


class Dialer:
    """Counts dials."""

    def __init__(self, network: MemoryNetwork, delay: float = 0.0) -> None:
        self.network, self.delay = network, delay
        self.times: list[float] = []

    async def dial(self, address: str, receiver: Receiver, timeout: float, tls: Tls | None = None) -> Stream:
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.delay)
        return await self.network.dial(address, receiver, timeout)


class Owner(PoolOwner):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.connections: list[str] = []
        self.losses: list[tuple[str, str]] = []

    def connected(self, address: str) -> None:
        self.connections.append(address)

    def lost(self, address: str, reason: str) -> None:
        self.losses.append((address, reason))


def pool_of(dialer: Dialer, **arguments: Any) -> Pool:
    return Pool(dial=dialer.dial, dial_timeout=3.0, max_frame_bytes=1 << 20, random=Random(1), **arguments)


@in_virtual_time
async def test_many_ask_and_one_dials() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    dialer = Dialer(server.network, delay=0.1)
    pool = pool_of(dialer)
    connections = await asyncio.gather(*(pool.get(ADDRESS) for _ in range(20)))
    assert len(set(connections)) == len(dialer.times) == 1
    assert pool.peek(ADDRESS) is await pool.get(ADDRESS)
    await pool.close()


@in_virtual_time
async def test_one_of_many_that_gives_up_does_not_stop_the_others() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    pool = pool_of(Dialer(server.network, delay=1.0))
    impatient, patient = asyncio.ensure_future(pool.get(ADDRESS)), asyncio.ensure_future(pool.get(ADDRESS))
    await asyncio.sleep(0.5)
    impatient.cancel()
    assert (await patient).is_closed is False
    with pytest.raises(asyncio.CancelledError):
        await impatient
    await pool.close()


@in_virtual_time
async def test_failures_are_followed_by_longer_and_longer_waits_up_to_a_second() -> None:
    network = MemoryNetwork()
    dialer = Dialer(network)
    pool = pool_of(dialer)
    for _ in range(12):
        assert isinstance(await outcome(pool.get(ADDRESS)), ConnectError)
    waits = [later - earlier for earlier, later in zip(dialer.times, dialer.times[1:], strict=False)]
    assert waits[0] <= 0.1
    assert all(wait <= 1.0 for wait in waits)
    assert all(wait >= 0.5 for wait in waits[-5:])
    await ScriptedServer(network, ADDRESS).start()
    await pool.get(ADDRESS)
    await pool.close()


@in_virtual_time
async def test_a_lost_connection_is_dialled_anew_and_told() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    owner = Owner()
    pool = pool_of(Dialer(server.network), owner=owner)
    first = await pool.get(ADDRESS)
    server.network.cut(ADDRESS)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert pool.peek(ADDRESS) is None
    second = await pool.get(ADDRESS)
    assert first is not second
    await pool.drop(ADDRESS)
    assert owner.connections == [ADDRESS, ADDRESS]
    ((address, reason),) = owner.losses
    assert address == ADDRESS and reason.startswith("connection reset, before it answered")
    assert second.closed_reason == "no longer needed"
    await pool.close()


@in_virtual_time
async def test_a_peer_that_has_answered_before_is_not_asked_whether_it_wants_tls() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    server.answers[34] = ok
    owner = Owner()
    pool = pool_of(Dialer(server.network), owner=owner)
    for number in range(2):
        connection = await pool.get(ADDRESS)
        if number == 0:
            await connection.start_request(Command(34, {}), timeout=3.0)
        server.network.cut(ADDRESS)
        await asyncio.sleep(0.1)
    assert owner.losses == [(ADDRESS, "connection reset")] * 2
    await pool.close()


@in_virtual_time
async def test_no_caller_gets_a_connection_before_it_was_greeted() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    server.answers[34] = server.answers[11] = ok

    class Greeting(PoolOwner):
        async def greet(self, address: str, connection: Connection) -> None:
            await asyncio.sleep(0.2)
            await connection.start_request(Command(34), timeout=3.0)

    pool = pool_of(Dialer(server.network), owner=Greeting())

    async def pull() -> None:
        await (await pool.get(ADDRESS)).start_request(Command(11), timeout=3.0)

    await asyncio.gather(pull(), pull())
    assert server.codes() == [34, 11, 11]
    await pool.close()


@in_virtual_time
async def test_a_greeting_without_answer_makes_the_connection_useless() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()

    class Greeting(PoolOwner):
        async def greet(self, address: str, connection: Connection) -> None:
            await connection.start_request(Command(34), timeout=3.0)

    pool = pool_of(Dialer(server.network), owner=Greeting())
    assert isinstance(await outcome(pool.get(ADDRESS)), RequestTimeoutError)
    await asyncio.sleep(0.1)
    assert pool.peek(ADDRESS) is None
    assert not server.listener.connections
    await pool.close()


@in_virtual_time
async def test_a_request_that_a_leaving_peer_refuses_goes_once_more_on_a_new_connection() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    owner = Owner()
    pool = pool_of(Dialer(server.network), owner=owner)
    first = await pool.get(ADDRESS)
    pull = first.start_request(Command(11), timeout=30.0)

    def leaving_once(command: Command) -> Command:
        server.answers[310] = ok
        return Command.response(command, 1500, remark="going away")

    server.answers[310] = leaving_once
    response = await first.start_request(Command(310, {"a": "1"}, b"body"), timeout=3.0)
    assert response.code == 0
    assert [(command.fields, command.body) for command in server.asked[1:]] == [({"a": "1"}, b"body")] * 2
    assert await pool.get(ADDRESS) is not first
    assert owner.losses == [(ADDRESS, "the peer goes away")]
    assert not first.is_closed, "the pull on it may still be answered"
    pull.cancel()
    await pool.close()


@in_virtual_time
async def test_a_second_refusal_is_the_callers() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    server.answers[310] = refuse(1500, "going away")
    pool = pool_of(Dialer(server.network))
    response = await (await pool.get(ADDRESS)).start_request(Command(310), timeout=3.0)
    assert (response.code, len(server.asked)) == (1500, 2)
    await pool.close()


@in_virtual_time
async def test_a_peer_that_went_away_for_good_means_nothing_was_sent() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()

    def last_words(command: Command) -> Command:
        server.network.unlisten(ADDRESS)
        return Command.response(command, 1500)

    server.answers[310] = last_words
    pool = pool_of(Dialer(server.network))
    error = await outcome((await pool.get(ADDRESS)).start_request(Command(310), timeout=3.0))
    assert isinstance(error, ConnectError)
    assert "went away" in str(error)
    await pool.close()


@in_virtual_time
async def test_a_peer_that_ends_every_connection_at_once_is_dialled_less_and_less_often() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    dialer = Dialer(server.network)
    pool = pool_of(dialer)

    async def connect_and_lose() -> None:
        connection = await pool.get(ADDRESS)
        server.network.cut(ADDRESS)
        await eventually(lambda: connection.is_closed)

    for _ in range(8):
        await connect_and_lose()
    waits = [later - earlier for earlier, later in zip(dialer.times, dialer.times[1:], strict=False)]
    assert waits[0] >= 0.05
    assert all(wait >= 0.5 for wait in waits[-3:])
    await pool.get(ADDRESS)
    await asyncio.sleep(10)  # a connection that has lived: the next dial comes at once, and the one after it soon
    server.network.cut(ADDRESS)
    for most in (0.01, 0.11):
        began = asyncio.get_running_loop().time()
        await connect_and_lose()
        assert asyncio.get_running_loop().time() - began <= most
    await pool.close()


@in_virtual_time
async def test_a_request_that_waits_for_a_new_connection_as_the_pool_closes_fails_and_is_not_cancelled() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    server.answers[310] = refuse(1500, "going away")
    dialer = Dialer(server.network)
    pool = pool_of(dialer)
    connection = await pool.get(ADDRESS)
    dialer.delay = 2.0
    answer = connection.start_request(Command(310), timeout=5.0)
    await asyncio.sleep(1.0)
    await pool.close()
    error = await outcome(answer)
    assert isinstance(error, ConnectError)
    assert error.problem == "went away, and the client stops"


@in_virtual_time
async def test_a_closed_pool_ends_dials_and_connections_and_gives_no_new_ones() -> None:
    server = await ScriptedServer(MemoryNetwork(), ADDRESS).start()
    pool = pool_of(Dialer(server.network))
    connection = await pool.get(ADDRESS)
    server.network.hold("10.0.0.2:1")
    dialling = asyncio.ensure_future(pool.get("10.0.0.2:1"))
    await asyncio.sleep(0.1)
    await pool.close()
    assert connection.is_closed
    assert isinstance(await outcome(dialling), ConnectError)
    assert isinstance(await outcome(pool.get(ADDRESS)), ConnectError)
