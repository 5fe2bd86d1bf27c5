"""Requests that brokers send to this client: request code -> handler. Other codes are refused."""

from __future__ import annotations

from collections.abc import Callable

from rocketapp.transport.connection import Connection, not_supported
from rocketapp.wire.command import Command

ServeRequest = Callable[[Connection, Command], Command | None]
"""Answers one request of a broker; None sends no answer."""


class Inbound:
    """The requests that this process serves."""

    def __init__(self) -> None:
        self._by_code: dict[int, ServeRequest] = {}

    def register(self, code: int, serve: ServeRequest) -> None:
        """Answer requests with this code by `serve`, which must not block."""
        self._by_code[int(code)] = serve

    def serve(self, connection: Connection, request: Command) -> Command | None:
        serve = self._by_code.get(request.code)
        return not_supported(request) if serve is None else serve(connection, request)
