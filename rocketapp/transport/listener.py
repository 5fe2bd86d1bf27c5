"""Accepts streams, makes a connection for each, and closes them all when the server stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketapp.transport.connection import Connection, Serve
from rocketapp.transport.stream import Stream

UNSENT_SUM_BYTES = 268_435_456
"""When slow readers leave more bytes than this unread in total, the connections with the most unread bytes are
ended. Peers that keep up are not counted: they have at most WRITE_HIGH_BYTES unsent."""


class Listener:
    """The accepted connections of one server. `accept` is what `listen_tcp` and `MemoryNetwork.listen` call."""

    def __init__(
        self, *, serve: Serve, max_frame_bytes: int, on_lost: Callable[[Connection, str], None] | None = None
    ) -> None:
        self._serve, self._max_frame_bytes, self._on_lost = serve, max_frame_bytes, on_lost
        self.connections: dict[Connection, None] = {}
        """In the order in which they were accepted."""
        self._unread: dict[Connection, int] = {}
        """Unsent bytes of slow readers at their last write. They may have read some of them since."""
        self._unread_sum = 0

    def __repr__(self) -> str:
        return f"<Listener: {len(self.connections)} connections>"

    def accept(self, stream: Stream) -> Connection:
        connection = Connection(
            serve=self._serve,
            max_frame_bytes=self._max_frame_bytes,
            on_lost=self._lost,
            on_unread=self._count_unread,
            is_server=True,
        )
        self.connections[connection] = None
        connection.attach(stream)
        return connection

    async def close(self) -> None:
        """Close every connection after its written bytes were sent."""
        await asyncio.gather(*(connection.close("the server stops") for connection in list(self.connections)))

    def _count_unread(self, connection: Connection) -> None:
        unsent = connection.unsent
        self._unread_sum += unsent - self._unread.get(connection, 0)
        self._unread[connection] = unsent
        if self._unread_sum > UNSENT_SUM_BYTES:
            self._cut_slowest()

    def _cut_slowest(self) -> None:
        self._unread = {connection: unsent for connection in self._unread if (unsent := connection.unsent)}
        self._unread_sum = sum(self._unread.values())
        while self._unread_sum > UNSENT_SUM_BYTES:
            slowest = max(self._unread, key=self._unread.__getitem__)
            # This calls `_lost`, which subtracts its bytes from the sum.
            slowest.abort(f"{self._unread[slowest]} bytes unread, {self._unread_sum} by all peers together")

    def _lost(self, connection: Connection, reason: str) -> None:
        self.connections.pop(connection, None)
        self._unread_sum -= self._unread.pop(connection, 0)
        if self._on_lost is not None:
            self._on_lost(connection, reason)
