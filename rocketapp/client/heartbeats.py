"""Sends heartbeats: regularly, and as the first request on every new connection.

A broker that restarted has lost its members and answers pulls only after a heartbeat. So a task per lost
broker dials until it is connected again, and the heartbeat goes out before any other request.
"""

from __future__ import annotations

import asyncio
from itertools import compress

from rocketapp.client.calls import clients
from rocketapp.client.members import Members
from rocketapp.client.routes import RouteTable
from rocketapp.errors import BrokerError, RocketAppError, TransportError
from rocketapp.model.event import LoopFailed, Observe
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.transport.pool import Pool
from rocketapp.wire.requests.clients import Heartbeat

_GREETING = 30.0
"""Seconds that a broker may take to answer the first heartbeat of a connection: one that has just started is slow.

If we ended the connection before, Apache's broker would perhaps take the heartbeat in after that: for two minutes it
would list a member of which nothing tells it that it is gone, with queues that nobody pulls.
"""


class Heartbeats:
    """Sends the heartbeat of the members to every broker of the known routes."""

    def __init__(
        self,
        *,
        members: Members,
        routes: RouteTable,
        pool: Pool,
        interval: float,
        timeout: float,
        observe: Observe,
    ) -> None:
        """`pool` has the connections to brokers. `timeout`: seconds that a broker may take to answer one heartbeat."""
        self._members, self._routes, self._pool = members, routes, pool
        self._interval, self._timeout = interval, timeout
        self._observe = observe
        self._rejoining: set[str] = set()
        """Addresses for which a task dials."""
        self._tasks = Tasks(observe)
        self._stopped = False

    def addresses(self) -> list[str]:
        """Every broker that gets heartbeats. Without consumers these are the masters only."""
        return self._routes.addresses(with_slaves=bool(self._members.consumers))

    async def greet(self, connection: Connection, timeout: float = _GREETING) -> None:
        """Send the first request of a new connection. A refusal is reported, not raised: other calls may succeed."""
        beat = self._members.beat()
        if beat is None:
            return
        try:
            connection.state = await clients.heartbeat(connection, beat, timeout)
        except BrokerError as error:
            self._observe(LoopFailed("heartbeat", str(error)))

    async def version_at(self, connection: Connection) -> int | None:
        """The version of this broker (MQVersion), as it answered a heartbeat; None when it refuses heartbeats."""
        if connection.state is None:
            await self.greet(connection, self._timeout)
        version: int | None = connection.state
        return version

    async def everywhere(self) -> frozenset[str]:
        """Send one heartbeat to every broker at once; return the addresses of those that accepted it."""
        beat = self._members.beat()
        if beat is None:
            return frozenset()
        addresses = self.addresses()
        accepted = await asyncio.gather(*(self._one(address, beat) for address in addresses))
        return frozenset(compress(addresses, accepted))

    async def run(self) -> None:
        """Send heartbeats until cancelled. Errors are reported and do not end the loop."""
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self.everywhere()
                await self.drop_offline()
            except Exception as error:
                # A client without heartbeats loses its queues, so no error may end this loop.
                self._observe(LoopFailed("heartbeat", str(error) or type(error).__name__))

    async def drop_offline(self) -> None:
        """Close the connections to brokers that no route names and that are not held.

        A client without members is a command or a script: it asks brokers by their address, and knows few routes.
        """
        if self._members.beat() is None:
            return
        known = set(self.addresses())
        await asyncio.gather(*(self._pool.drop(each) for each in self._pool.addresses() if each not in known))

    def rejoin(self, address: str) -> None:
        """Dial this broker until it is reached, or is neither in a route nor held any more."""
        if self._stopped or address in self._rejoining:
            return
        if address in self.addresses() and self._members.beat() is not None:
            self._rejoining.add(address)
            self._tasks.start(self._rejoin(address), f"rejoin {address}")

    async def stop(self) -> None:
        """Stop dialling. Called before the pool is closed: a closed pool refuses at once, so the loops would spin."""
        self._stopped = True
        await self._tasks.close()

    async def _rejoin(self, address: str) -> None:
        try:
            # A connection may be lost again before this task goes on, and `rejoin` leaves it to this task then.
            while address in self.addresses() and self._pool.peek(address) is None:
                try:
                    # The pool waits between two dials, so this does not spin.
                    await self._pool.get(address)
                except TransportError:
                    self._routes.unreachable(address)
        finally:
            self._rejoining.discard(address)

    async def _one(self, address: str, beat: Heartbeat) -> bool:
        try:
            await clients.heartbeat(await self._pool.get(address), beat, self._timeout)
        except RocketAppError as error:
            self._observe(LoopFailed("heartbeat", str(error)))
            if isinstance(error, TransportError):
                self.rejoin(address)
            return False
        return True
