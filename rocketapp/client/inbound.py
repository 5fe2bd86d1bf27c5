"""Requests that brokers send to this client: request code -> handler. Other codes are refused."""

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
        """Answer requests with this code by `handler`, which must not block."""
        self._handlers[int(code)] = handler

    def serve(self, connection: Connection, request: Command) -> Command | None:
        handler = self._handlers.get(request.code)
        return not_supported(request) if handler is None else handler(connection, request)
