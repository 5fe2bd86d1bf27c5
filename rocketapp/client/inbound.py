"""What brokers ask of us: request code -> handler. What nobody registered is refused by name."""

from __future__ import annotations

from collections.abc import Callable

from rocketapp.transport.connection import Connection, not_supported
from rocketapp.wire.command import Command

Handler = Callable[[Connection, Command], Command | None]


class Inbound:
    """The requests that this process serves."""

    def __init__(self) -> None:
        self._handlers: dict[int, Handler] = {}

    def register(self, code: int, handler: Handler) -> None:
        """From now on `handler` answers requests with this code; it must not block."""
        self._handlers[int(code)] = handler

    def serve(self, connection: Connection, request: Command) -> Command | None:
        handler = self._handlers.get(request.code)
        return not_supported(request) if handler is None else handler(connection, request)
