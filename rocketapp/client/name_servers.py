"""The name servers of a cluster. Any of them can answer, and the current one is kept while it works."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

from rocketapp.client.calls.ask import answer_to, ask_unless
from rocketapp.errors import BrokerError, ConfigError, ProtocolError, TransportError
from rocketapp.model.names import DEFAULT_TOPIC
from rocketapp.model.route import BrokerData, TopicRoute
from rocketapp.transport.connection import Connection
from rocketapp.transport.pool import Pool
from rocketapp.transport.stream import shown_url, split_address
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.routes import RouteRequest, decode_cluster_info, decode_route, decode_topic_list

T = TypeVar("T")


class NameServers:
    """Asks the current one; when it fails, each of the others once."""

    def __init__(self, addresses: Sequence[str], *, pool: Pool, timeout: float, random: Random) -> None:
        """`timeout`: seconds that one answer may take."""
        self._addresses = list(addresses)
        # Shuffled, so that the processes of a cluster spread over its name servers.
        random.shuffle(self._addresses)
        self._pool, self._timeout = pool, timeout

    def __repr__(self) -> str:
        return f"<NameServers {';'.join(self._addresses)}>"

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
    for address in addresses:
        if "://" in address:
            raise ConfigError("name server", f"{shown_url(address)!r} is a URL: write host:port[;host:port]")
        try:
            split_address(address)
        except ValueError as error:
            raise ConfigError("name server", f"{error}; several are separated by ;") from None
    return addresses


async def get_route(connection: Connection, topic: str, timeout: float) -> TopicRoute | None:
    """The route of a topic; None when this name server knows no broker that holds it."""
    command = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteRequest(topic).to_fields())
    response = await ask_unless(ResponseCode.TOPIC_NOT_EXIST, connection, command, timeout)
    return None if response is None else decode_route(response.body)


async def topic_list(connection: Connection, timeout: float) -> list[str]:
    """Every topic that this name server knows, system topics included."""
    return decode_topic_list(await answer_to(connection, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, timeout))


async def cluster_info(connection: Connection, timeout: float) -> tuple[BrokerData, ...]:
    """Every broker that this name server knows."""
    return decode_cluster_info(await answer_to(connection, RequestCode.GET_BROKER_CLUSTER_INFO, timeout))
