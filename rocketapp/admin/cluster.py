"""A cluster as administrators see it: its topics and all master brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TypeVar

from rocketapp.client.instance import ClientInstance
from rocketapp.errors import NoRouteError, RocketAppError, TransportError, did_you_mean
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.route import TopicRoute
from rocketapp.tasks import scope
from rocketapp.transport.connection import Connection

T = TypeVar("T")
S = TypeVar("S")
TIMEOUT = 5.0
"""Seconds that one answer may take (Java's admin tool: 5)."""
MOST_NAMED = 3
"""Names of members, queues or topics that a line tells; the rest are counted."""
AT_ONCE = 32
"""Most questions that are under way."""


class AdminError(RocketAppError):
    """An administrative operation on a group is impossible, or was only done in part."""


class AdminCluster:
    """Asks the brokers of one cluster. Every method raises TransportError or BrokerError when an answer fails."""

    def __init__(self, client: ClientInstance, masters: dict[str, str]) -> None:
        self.client: ClientInstance = client
        self.masters: dict[str, str] = masters
        """Address of each master by the name of its broker."""
        self.timeout: float = TIMEOUT
        self.silent: dict[str, RocketAppError] = {}
        """Brokers that a look went without, and why."""

    def __repr__(self) -> str:
        return f"<AdminCluster {', '.join(f'{name} at {address}' for name, address in self.masters.items())}>"

    @classmethod
    async def of(cls, client: ClientInstance, own: Mapping[str, str] | None = None) -> AdminCluster:
        """The cluster of a started client. Raises TransportError when it has no broker with a master.

        `own`: the address by name of a broker that is asked although it may be a slave.
        """
        brokers = await client.brokers()
        masters = {broker.broker_name: broker.master for broker in brokers if broker.master is not None} | {
            **(own or {})
        }
        if not masters:
            raise TransportError("name server", "knows no broker: is one running, and registered there?")
        return cls(client, dict(sorted(masters.items())))

    async def connection(self, broker_name: str) -> Connection:
        """The connection to the master of this broker. Raises NoRouteError without one."""
        address = self.masters.get(broker_name)
        if address is None:
            raise NoRouteError("", f"broker {broker_name} has no master: known are {', '.join(self.masters)}")
        return await self.client.connection(address)

    async def topics(self) -> list[str]:
        """The names of all topics, sorted, including retry, dead letter and system topics."""
        return sorted(await self.client.topics())

    async def route(self, topic: str) -> TopicRoute:
        """The route of the topic. Raises NoRouteError when no broker holds it."""
        route = await self.client.routes.fetch(topic)
        if route is None:
            mend = did_you_mean(topic, await self.topics(), otherwise=": see rocketapp topic list")
            raise NoRouteError(topic, f"no broker holds it{mend}")
        return route

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Every queue of the topic, sorted, also those that may not be read. Raises NoRouteError."""
        route = await self.route(topic)
        return sorted(
            MessageQueue(topic, data.broker_name, queue_id)
            for data in route.queues
            for queue_id in range(max(data.read_queues, data.write_queues))
        )

    async def from_all(self, ask: Callable[[Connection, float], Awaitable[T]]) -> dict[str, T]:
        """The answer of every master by broker name. Fails if one does not answer."""
        return dict(zip(self.masters, await at_once(self._asking(ask), self.masters), strict=True))

    async def from_reachable(
        self, ask: Callable[[Connection, float], Awaitable[T]], *, among: Sequence[str] | None = None
    ) -> dict[str, T]:
        """The answer of every master that can be reached: only for showing, not for changing something.

        `silent` names those that cannot; they are not asked again. Raises TransportError or NoRouteError when none
        answers. `among`: names of brokers.
        """
        return await self.reachable(self._asking(ask), self.masters if among is None else among)

    async def reachable(self, work: Callable[[str], Awaitable[T]], names: Collection[str]) -> dict[str, T]:
        """The result of `work` for each of these brokers that answers, by name; see `from_reachable`."""
        found: dict[str, T] = {}

        async def one(name: str) -> None:
            try:
                found[name] = await work(name)
            except (TransportError, NoRouteError) as error:
                self.silent[name] = error

        await at_once(one, [name for name in names if name not in self.silent])
        if not found and names:
            raise next(self.silent[name] for name in names)
        return {name: found[name] for name in names if name in found}

    def _asking(self, ask: Callable[[Connection, float], Awaitable[T]]) -> Callable[[str], Awaitable[T]]:
        """`ask` as a function of a broker's name."""

        async def one(name: str) -> T:
            return await ask(await self.connection(name), self.timeout)

        return one

    async def for_queues(
        self, queues: Iterable[MessageQueue], ask: Callable[[Connection, MessageQueue, float], Awaitable[T]]
    ) -> dict[MessageQueue, T]:
        """The answer for every queue, each from its own broker."""
        asked = list(queues)

        async def one(queue: MessageQueue) -> T:
            return await ask(await self.connection(queue.broker_name), queue, self.timeout)

        return dict(zip(asked, await at_once(one, asked), strict=True))


def first_of(some: Collection[object]) -> str:
    """The first of them as text, and how many more there are."""
    more = f" and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else ""
    return ", ".join(map(str, list(some)[:MOST_NAMED])) + more


async def at_once(work: Callable[[S], Awaitable[T]], items: Iterable[S]) -> list[T]:
    """Run `work` for all items concurrently; results in their order. The first failure cancels the rest."""
    room = asyncio.Semaphore(AT_ONCE)

    async def one(item: S) -> T:
        async with room:
            return await work(item)

    async with scope(*map(one, items)) as tasks:
        return list(await asyncio.gather(*tasks))
