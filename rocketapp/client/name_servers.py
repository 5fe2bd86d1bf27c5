"""The name servers of a cluster. Any of them can answer, and the current one is kept while it works.

Their addresses are given, or read from a URL and read again every two minutes (Java: TopAddressing). A look that fails
changes nothing: the last addresses stay. An address that stays keeps its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

from rocketapp.client.calls.ask import answer_to, ask_unless
from rocketapp.errors import BrokerError, ConfigError, ProtocolError, RocketAppError, TransportError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.model.route import BrokerData, TopicRoute
from rocketapp.transport.connection import Connection
from rocketapp.transport.http_get import ReadUrl, shown_url
from rocketapp.transport.pool import Pool
from rocketapp.transport.stream import join_address, split_address
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.routes import RouteRequest, decode_cluster_info, decode_route, decode_topic_list

T = TypeVar("T")


class NameServers:
    """Asks the current one; when it fails, each of the others once."""

    def __init__(self, addresses: Sequence[str], *, pool: Pool, timeout: float, random: Random) -> None:
        """`timeout`: seconds that one answer may take."""
        self._addresses = list(addresses)
        # Shuffled, so that the processes of a cluster spread over its name servers.
        random.shuffle(self._addresses)
        self._pool, self._timeout, self._random = pool, timeout, random

    def __repr__(self) -> str:
        return f"<NameServers {';'.join(self._addresses)}>"

    async def adopt(self, addresses: Sequence[str]) -> None:
        """From now on these. Connections to those that stay are kept, and the current one stays the first of them."""
        gone = [address for address in self._addresses if address not in addresses]
        new = [address for address in addresses if address not in self._addresses]
        self._random.shuffle(new)
        self._addresses = [address for address in self._addresses if address not in gone] + new
        for address in gone:
            await self._pool.drop(address, "no name server any more")

    async def connect(self) -> None:
        """Check that a name server answers. TransportError names every address that was tried and its answer."""
        # A connection alone proves nothing: a mistyped port may belong to another server. So a route is asked for.
        await self.route(DEFAULT_TOPIC)

    async def route(self, topic: str) -> TopicRoute | None:
        """The route of a topic; None when it has none. Raises TransportError when no name server answers."""
        return await self._any(lambda connection: get_route(connection, topic, self._timeout))

    async def topics(self) -> list[str]:
        """Every topic of the cluster, system topics included. Raises TransportError when no name server answers."""
        return await self._any(lambda connection: topic_list(connection, self._timeout))

    async def brokers(self) -> tuple[BrokerData, ...]:
        """Every broker of the cluster. Raises TransportError when no name server answers."""
        return await self._any(lambda connection: cluster_info(connection, self._timeout))

    async def _any(self, ask: Callable[[Connection], Awaitable[T]]) -> T:
        """Raises TransportError, or its subclass that fits all of them, when none answers."""
        errors = []
        for address in tuple(self._addresses):
            try:
                connection = await self._pool.get(address)
                return await ask(connection)
            except TransportError as error:
                errors.append(type(error)(address, error.problem))
            except (BrokerError, ProtocolError) as error:
                errors.append(TransportError(address, str(error)))
            self._demote(address)
        if not errors:
            raise TransportError("no name server", "set client.name_server to host:port[;host:port]")
        if len(errors) == 1:
            raise errors[0]
        kinds = {type(error) for error in errors}
        kind = kinds.pop() if len(kinds) == 1 else TransportError
        where = ";".join(error.address for error in errors)
        raise kind(where, "; ".join(f"{error.address} says {error.problem}" for error in errors))

    def _demote(self, address: str) -> None:
        """Try the next one first from now on, unless another call has already changed the order."""
        if self._addresses and self._addresses[0] == address:
            self._addresses.append(self._addresses.pop(0))


def parse_name_servers(text: str) -> list[str]:
    """The addresses of `host:port;host:port`, without repetitions. Raises ConfigError for an illegal address."""
    addresses = list(dict.fromkeys(part.strip() for part in text.replace(",", ";").split(";") if part.strip()))
    if text and not addresses:
        raise ConfigError("name server", f"{text!r} names none: write host:port, several separated by ;")
    for address in addresses:
        if "://" in address:
            raise ConfigError("name server", f"{shown_url(address)!r} is a URL: write host:port, or one URL alone")
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError("name server", f"{error}; several are separated by ;") from None
    return addresses


def name_server_problem(text: str) -> str | None:
    """Why this is neither addresses nor the URL of an address server, or None."""
    try:
        _ = address_server(text) or parse_name_servers(text)
    except ConfigError as error:
        return error.problem
    return None


async def get_route(connection: Connection, topic: str, timeout: float) -> TopicRoute | None:
    """The route of a topic; None when this name server knows no broker that holds it."""
    code, absent = RequestCode.GET_ROUTEINFO_BY_TOPIC, ResponseCode.TOPIC_NOT_EXIST
    response = await ask_unless(absent, connection, code, timeout, RouteRequest(topic))
    return None if response is None else decode_route(response.body)


async def topic_list(connection: Connection, timeout: float) -> list[str]:
    """Every topic that this name server knows, system topics included."""
    return decode_topic_list(await answer_to(connection, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, timeout))


async def cluster_info(connection: Connection, timeout: float) -> tuple[BrokerData, ...]:
    """Every broker that this name server knows."""
    return decode_cluster_info(await answer_to(connection, RequestCode.GET_BROKER_CLUSTER_INFO, timeout))


INTERVAL, JITTER = 120.0, 0.1
"""Seconds between two looks (Java: 2 minutes), and the part of it by which they differ: processes that started together
do not ask together."""
_PORTS = {"http": 80, "https": 443}


class AddressServerUrl(NamedTuple):
    """Where addresses of name servers are read."""

    text: str
    """All of it, which may hold a token: for the request alone, not to be shown."""
    scheme: str
    address: str
    """`host:port` of the server."""
    path: str


def address_server(text: str) -> AddressServerUrl | None:
    """The URL that stands in place of addresses; None for addresses. Raises ConfigError for an illegal URL."""
    text = text.strip()
    if "://" not in text:
        return None
    shown = repr(shown_url(text))
    if "@" in text.partition("?")[0]:
        raise ConfigError("name server", f"{shown}: leave user and password out of the URL: they are not sent")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError("name server", f"{shown} cannot be read as a URL: {error}") from None
    if parts.scheme not in _PORTS or not parts.hostname or ";" in text or any(map(str.isspace, text)):
        raise ConfigError("name server", f"{shown}: write a URL of http or https, or host:port[;host:port]")
    if parts.path in ("", "/"):
        problem = "is a URL: write host:port, or the URL of an address server with its path (/rocketmq/nsaddr)"
        raise ConfigError("name server", f"{shown} {problem}")
    return AddressServerUrl(text, parts.scheme, join_address(parts.hostname, port or _PORTS[parts.scheme]), parts.path)


class AddressServer:
    """Keeps the addresses of a cluster's name servers up to date."""

    def __init__(
        self,
        url: AddressServerUrl,
        *,
        read: ReadUrl,
        name_servers: NameServers,
        timeout: float,
        random: Random,
        observe: Observe,
    ) -> None:
        """`name_servers` adopts the addresses after each look; `timeout`: seconds that one look may take."""
        self._url, self._read, self._name_servers = url, read, name_servers
        self._timeout, self._random, self._observe = timeout, random, observe

    def __repr__(self) -> str:
        return f"<AddressServer {shown_url(self._url.text)}>"

    async def look(self) -> None:
        """Read the addresses and adopt them. Raises TransportError without an answer, and for one without addresses."""
        await self._name_servers.adopt(self._parsed(await self._read(self._url.text, self._timeout)))

    async def run(self) -> None:
        """Look every two minutes, until cancelled. Errors do not end the loop; one that stays is told once."""
        told = ""
        while True:
            await asyncio.sleep(INTERVAL * (1 + JITTER * (2 * self._random.random() - 1)))
            problem = ""
            try:
                await self.look()
            except RocketAppError as error:
                problem = str(error)
            except Exception as error:
                problem = f"{type(error).__name__}: {error}"
            if problem and problem != told:
                self._observe(LoopFailed("address server", problem))
            told = problem

    def _parsed(self, text: str) -> list[str]:
        # The first line alone, as Java reads it.
        line = (text.strip().splitlines() or [""])[0]
        try:
            addresses = parse_name_servers(line)
        except ConfigError as error:
            raise TransportError(shown_url(self._url.text), f"names no name servers: {error.problem}") from None
        if not addresses:
            raise TransportError(shown_url(self._url.text), "names no name servers: its first line is empty")
        return addresses
