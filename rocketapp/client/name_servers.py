"""The name servers of a cluster. Any of them can answer, and the current one is kept while it works."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

from rocketapp.client.calls.routes import cluster_info, get_route, topic_list
from rocketapp.errors import BrokerError, ConfigError, ProtocolError, TransportError
from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.model.route import BrokerData, TopicRoute
from rocketapp.transport.connection import Connection
from rocketapp.transport.pool import Pool
from rocketapp.transport.stream import split_address
from rocketapp.transport.web import shown_url

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
        problems = []
        for address in tuple(self._addresses):
            try:
                connection = await self._pool.get(address)
                return await ask(connection)
            except TransportError as error:
                problems.append((address, error.problem))
            except (BrokerError, ProtocolError) as error:
                problems.append((address, str(error)))
            self._demote(address)
        if not problems:
            raise TransportError("no name server", "set client.name_server to host:port[;host:port]")
        if len(problems) == 1:
            raise TransportError(*problems[0])
        where = ";".join(address for address, _ in problems)
        raise TransportError(where, "; ".join(f"{address} says {problem}" for address, problem in problems))

    def _demote(self, address: str) -> None:
        """Try the next one first from now on, unless another call has already changed the order."""
        if self._addresses and self._addresses[0] == address:
            self._addresses.append(self._addresses.pop(0))


def parse_name_servers(text: str) -> list[str]:
    """The addresses of `host:port;host:port`, without repetitions. Raises ConfigError for an illegal address."""
    addresses = list(dict.fromkeys(part.strip() for part in text.replace(",", ";").split(";") if part.strip()))
    for address in addresses:
        if "://" in address:
            raise ConfigError("name server", f"{shown_url(address)!r} is a URL: write host:port, or one URL alone")
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError("name server", f"{error}; several are separated by ;") from None
    return addresses
