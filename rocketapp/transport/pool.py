"""One connection per address; concurrent callers share one dial.

After a dial the next one to the same address waits, and all its callers wait with it: longer after each that
failed, or whose connection ended at once. A new connection is handed out only after `greet` has returned, so the
heartbeat is always its first request. When a peer answers GO_AWAY, its connection is retired and the request is
sent once more on a new one.
"""

from __future__ import annotations

import asyncio
from random import Random

from rocketapp.errors import ConnectError, TransportError
from rocketapp.state.backoff import Backoff
from rocketapp.tasks import Tasks
from rocketapp.transport.access import Access
from rocketapp.transport.connection import Connection, PendingRequest, not_supported
from rocketapp.transport.stream import Dial
from rocketapp.wire.command import Command

FIRST_WAIT, MOST_WAIT = 0.1, 1.0
"""Seconds between two dials to one address. A broker that came back is found within about a second."""


class PoolOwner:
    """The callbacks of a pool to its owner. These defaults refuse every request and ignore the rest."""

    def serve(self, connection: Connection, request: Command) -> Command | None:
        """Answer a request of a server; see `connection.Serve`."""
        return not_supported(request)

    async def greet(self, address: str, connection: Connection) -> None:
        """Send the first requests of a new connection. Raises TransportError when it cannot be used."""

    def connected(self, address: str) -> None:
        """A new connection is ready for all callers."""

    def lost(self, address: str, reason: str) -> None:
        """A connection has ended, and not because the pool closed it."""


class Pool:
    """The connections of one process to the servers of one cluster."""

    def __init__(
        self,
        *,
        dial: Dial,
        dial_timeout: float,
        max_frame_bytes: int,
        random: Random,
        owner: PoolOwner | None = None,
        access: Access | None = None,
    ) -> None:
        self._dial, self._dial_timeout = dial, dial_timeout
        self._owner, self._access = owner or PoolOwner(), access
        self._tls = None if access is None else access.tls
        self._max_frame_bytes, self._random = max_frame_bytes, random
        self._connections: dict[str, Connection] = {}
        self._dials: dict[str, asyncio.Task[Connection]] = {}
        self._backoffs: dict[str, tuple[Backoff, float]] = {}
        """By address, and when it may be dialled again."""
        self._answered: set[str] = set()
        """Addresses whose peers have answered: they speak as we do."""
        self._tasks = Tasks()
        self._closed = False

    def __repr__(self) -> str:
        return f"<Pool: {len(self._connections)} connections>"

    def disown(self) -> None:
        """In a forked child: leave the connections to the parent process."""
        for connection in self._connections.values():
            connection.disown()

    def peek(self, address: str) -> Connection | None:
        """The connection to that address; None when there is none."""
        return self._connections.get(address)

    def addresses(self) -> list[str]:
        """Addresses that are connected or being dialled."""
        return [*self._connections, *(address for address in self._dials if address not in self._connections)]

    async def get(self, address: str) -> Connection:
        """The connection to that address, dialled when necessary. Raises ConnectError, or what `greet` raised."""
        connection = self._connections.get(address)
        if connection is not None:
            return connection
        if self._closed:
            raise ConnectError(address, "the client is stopped")
        task = self._dials.get(address)
        if task is None:
            task = self._tasks.start(self._connect(address), f"dial {address}")
            self._dials[address] = task
            task.add_done_callback(lambda done: self._dialled(address, done))
        try:
            # One dial serves many callers, so a cancelled caller must not cancel it.
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled() and not _is_cancelling():
                raise ConnectError(address, "dropped while connecting") from None
            raise

    async def drop(self, address: str, reason: str = "no longer needed") -> None:
        """Close the connection to that address and forget its failures."""
        if task := self._dials.get(address):
            task.cancel()
            await asyncio.wait([task])
        self._backoffs.pop(address, None)
        if connection := self._connections.pop(address, None):
            await connection.close(reason)

    async def close(self) -> None:
        """Close everything; later calls of `get` fail."""
        self._closed = True
        await self._tasks.close()
        await asyncio.gather(*(self.drop(address, "the client stops") for address in self.addresses()))
        await self._tasks.close()

    async def _connect(self, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        backoff, not_before = self._backoffs.get(address) or (Backoff(FIRST_WAIT, MOST_WAIT), 0.0)
        if (wait := not_before - loop.time()) > 0:
            await asyncio.sleep(wait)
        elif wait < -MOST_WAIT:
            backoff.reset()  # the last one is long ago: its connection has lived
        connection = Connection(
            serve=self._owner.serve,
            max_frame_bytes=self._max_frame_bytes,
            on_lost=lambda _, reason: self._lost(address, connection, reason),
            on_go_away=lambda _, pending_request: self._go_away(address, connection, pending_request),
            access=self._access,
            knows_peer=address in self._answered,
        )
        try:
            connection.attach(await self._dial(address, connection, self._dial_timeout, self._tls))
            await self._owner.greet(address, connection)
            if connection.is_closed:
                raise ConnectError(address, connection.closed_reason)
        except TransportError:
            self._wait_before_next(address, backoff)
            connection.abort("useless")
            raise
        except BaseException:
            connection.abort("dropped while connecting")
            raise
        # Also after a success: a peer that ends every connection at once would be dialled without a pause.
        self._wait_before_next(address, backoff)
        self._connections[address] = connection
        return connection

    def _wait_before_next(self, address: str, backoff: Backoff) -> None:
        now = asyncio.get_running_loop().time()
        self._backoffs[address] = backoff, now + backoff.next(self._random.random())

    def _dialled(self, address: str, task: asyncio.Task[Connection]) -> None:
        del self._dials[address]
        # Reading the exception marks it as retrieved: all callers may have been cancelled.
        if not task.cancelled() and task.exception() is None:
            self._owner.connected(address)

    def _lost(self, address: str, connection: Connection, reason: str) -> None:
        if connection.has_answered:
            self._answered.add(address)
        if self._connections.get(address) is connection:
            del self._connections[address]
            if not self._closed:
                self._owner.lost(address, reason)

    def _go_away(self, address: str, connection: Connection, pending_request: PendingRequest) -> None:
        if not connection.is_retired and self._connections.get(address) is not connection:
            # The connection is still being greeted. Asking again would wait for this dial, that is, for itself.
            pending_request.answer.set_exception(ConnectError(address, "went away while greeting"))
            return
        self._lost(address, connection, "the peer goes away")
        self._tasks.start(self._resend(address, pending_request), f"go away {address}")
        connection.retire()

    async def _resend(self, address: str, pending_request: PendingRequest) -> None:
        answer = pending_request.answer
        try:
            async with asyncio.timeout_at(pending_request.deadline):
                connection = await self.get(address)
            connection.resend(pending_request._replace(is_resent=True))
        except (TransportError, TimeoutError) as error:
            if not answer.done():
                # The peer refused the request with GO_AWAY, so it certainly did not execute it.
                answer.set_exception(ConnectError(address, f"went away: {error}"))
        except asyncio.CancelledError:
            # It is the pool that ends: the caller was not cancelled.
            if not answer.done():
                answer.set_exception(ConnectError(address, "went away, and the client stops"))
            raise


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
