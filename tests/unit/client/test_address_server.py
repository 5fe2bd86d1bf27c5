"""Name servers are read from a URL at the start and every two minutes; what fails changes nothing."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from rocketapp.client.instance import ClientInstance
from rocketapp.client.name_servers import INTERVAL, JITTER, AddressServer, NameServers, address_server
from rocketapp.clock import SystemClock
from rocketapp.config.client import ClientConfig
from rocketapp.errors import ConfigError, TransportError
from rocketapp.model.event import Connected, Disconnected, LoopFailed
from rocketapp.scripts.client import Client
from rocketapp.transport.http_get import read_url
from rocketapp.transport.memory import MemoryNetwork
from tests.unit.scripted import Events, ScriptedNameServer, in_virtual_time, outcome

URL = "http://10.0.0.9:8080/rocketmq/nsaddr"
FIRST, SECOND, THIRD = "10.0.0.1:9876", "10.0.0.2:9876", "10.0.0.3:9876"


class AddressBook:
    """What stands behind the URL."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.problem: Exception | None = None
        self.read_at: list[float] = []

    async def read(self, url: str, timeout: float) -> str:
        assert url == URL
        self.read_at.append(asyncio.get_running_loop().time())
        if self.problem is not None:
            raise self.problem
        return self.text


def client_of(network: MemoryNetwork, book: AddressBook, events: Events) -> ClientInstance:
    return ClientInstance(
        config=ClientConfig(name_server=URL),
        dial=network.dial,
        clock=SystemClock(),
        random=Random(0),
        observe=events,
        client_ip="10.0.0.5",
        pid=7,
        read_url=book.read,
    )


@in_virtual_time
async def test_it_is_read_at_the_start_and_every_two_minutes_not_all_processes_together() -> None:
    network, book = MemoryNetwork(), AddressBook(FIRST)
    await ScriptedNameServer(network, FIRST).start()
    client = client_of(network, book, Events())
    await client.start()
    await asyncio.sleep(10 * INTERVAL)
    pauses = [later - earlier for earlier, later in zip(book.read_at, book.read_at[1:], strict=False)]
    assert len(pauses) >= 9
    assert all(INTERVAL * (1 - JITTER) <= pause <= INTERVAL * (1 + JITTER) for pause in pauses)
    assert len(set(pauses)) > 1
    await client.stop()


@in_virtual_time
async def test_changes_are_adopted_and_an_address_that_stays_keeps_its_connection() -> None:
    network, book, events = MemoryNetwork(), AddressBook(FIRST), Events()
    servers = {address: await ScriptedNameServer(network, address).start() for address in (FIRST, SECOND, THIRD)}
    client = client_of(network, book, events)
    await client.start()
    book.text = f"{SECOND};{FIRST}\n"
    for _ in range(5):  # a connection that is not used is closed after two minutes
        await client.routes.fetch("t")
        await asyncio.sleep(0.25 * INTERVAL)
    assert await client.routes.fetch("t") is None
    assert [event for event in events if isinstance(event, Disconnected)] == []
    book.text = THIRD
    await asyncio.sleep(1.2 * INTERVAL)
    assert await client.routes.fetch("t") is None
    assert len(servers[THIRD].asked) > 0
    connected = [event.address for event in events if isinstance(event, Connected)]
    assert connected[0] == FIRST
    assert connected[-1] == THIRD
    assert connected.count(FIRST) == 1
    await client.stop()


@in_virtual_time
async def test_a_look_that_fails_keeps_the_last_addresses_and_says_so() -> None:
    network, book, events = MemoryNetwork(), AddressBook(f"  {FIRST}\r\nthe rest is not read"), Events()
    server = await ScriptedNameServer(network, FIRST).start()
    client = client_of(network, book, events)
    await client.start()
    for text, problem in [
        ("", None),
        ("<html>", None),
        ("", TransportError(URL, "answers 503")),
        ("", ZeroDivisionError("a bug")),
    ]:
        book.text, book.problem = text, problem
        await asyncio.sleep(3.6 * INTERVAL)
    asked = len(server.asked)
    assert await client.routes.fetch("t") is None
    assert len(server.asked) == asked + 1
    told = [event.error for event in events if isinstance(event, LoopFailed) and event.loop == "address server"]
    assert len(told) == 4
    assert f"{URL}: names no name servers: its first line is empty" in told
    assert any("'<html>' is not host:port" in text for text in told)
    assert f"{URL}: answers 503" in told
    assert "ZeroDivisionError: a bug" in told
    await client.stop()


@in_virtual_time
async def test_a_start_without_an_answer_fails_with_the_url() -> None:
    book = AddressBook("")
    client = client_of(MemoryNetwork(), book, Events())
    error = await outcome(client.start())
    assert isinstance(error, TransportError)
    assert str(error) == f"{URL}: names no name servers: its first line is empty"
    await client.stop()


def test_a_url_stands_in_place_of_addresses() -> None:
    assert address_server("a:1;b:2") is None
    found = address_server(" https://conf.example/rocketmq/nsaddr-unit?nofix=1 ")
    assert found is not None
    assert (found.address, found.path) == ("conf.example:443", "/rocketmq/nsaddr-unit")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("http://h:1", "is a URL: write host:port, or the URL of an address server with its path"),
        ("ftp://h/rocketmq/nsaddr", "write a URL of http or https"),
        ("http://h:port/rocketmq/nsaddr", "cannot be read as a URL"),
        ("http://me:pw@h/rocketmq/nsaddr", "leave user and password out of the URL"),
        ("http:///rocketmq/nsaddr", "write a URL of http or https"),
        ("http://h/nsaddr;b:2", "write a URL of http or https"),
    ],
)
def test_a_wrong_url_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        address_server(text)
    assert "pw" not in str(raised.value)


@in_virtual_time
async def test_what_a_url_carries_beside_its_place_is_shown_nowhere() -> None:
    async def read(url: str, timeout: float) -> str:
        return await read_url(url, timeout) if url.startswith("http://127.0.0.1:1/") else "<html>"

    for where in ("127.0.0.1:1/x", "10.0.0.9/x"):
        server = AddressServer(
            address_server(f"http://{where}?token=pw"),  # type: ignore[arg-type]
            read=read,
            name_servers=NameServers([], pool=None, timeout=1, random=Random(0)),  # type: ignore[arg-type]
            timeout=1.0,
            random=Random(0),
            observe=Events(),
        )
        problem = await outcome(server.look())
        assert isinstance(problem, TransportError) and where in str(problem)
        assert "pw" not in f"{problem}{server!r}"
    assert "pw" not in repr(Client("http://10.0.0.9/x?token=pw"))
