"""Accept streams and give each one a connection; remember them, so that stopping ends them all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rocketapp.transport.connection import Connection, Serve
from rocketapp.transport.stream import Stream


class Listener:
    """The accepted connections of one server. `accept` is what `listen_tcp` and `MemoryNetwork.listen` call."""

    def __init__(
        self, *, serve: Serve, max_frame_bytes: int, on_lost: Callable[[Connection, str], None] | None = None
    ) -> None:
        self._serve, self._max_frame_bytes, self._on_lost = serve, max_frame_bytes, on_lost
        self.connections: dict[Connection, None] = {}
        """In the order in which they were accepted."""

    def __repr__(self) -> str:
        return f"<Listener: {len(self.connections)} connections>"

    def accept(self, stream: Stream) -> Connection:
        connection = Connection(
            serve=self._serve, max_frame_bytes=self._max_frame_bytes, on_lost=self._lost, is_server=True
        )
        self.connections[connection] = None
        connection.attach(stream)
        return connection

    async def close(self) -> None:
        """Close every connection; what was written to them still leaves."""
        await asyncio.gather(*(connection.close("the server stops") for connection in list(self.connections)))

    def _lost(self, connection: Connection, reason: str) -> None:
        self.connections.pop(connection, None)
        if self._on_lost is not None:
            self._on_lost(connection, reason)
