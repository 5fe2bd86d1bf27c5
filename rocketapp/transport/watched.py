"""A connection whose requests are watched: for plugins that sign, time or trace every remote call.

Without a watcher plain connections are made, so that requests cost what they cost before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from rocketapp.transport.connection import Connection
from rocketapp.wire.command import Command

Told = Callable[[Command | BaseException | None], None]
"""Receives the response, whatever its code, or why it is missing; None of a one-way request."""
Watch = Callable[[str, Command], Told | None]
"""(address, request): called before the request is encoded; it may change the request's fields, which are its own."""
NewConnection = Callable[..., Connection]
"""Takes the arguments of Connection."""


class WatchedConnection(Connection):
    """Tells `watch` of every request, and what it returned of the answer."""

    def __init__(self, watch: Watch, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._watch = watch

    def start_request(self, command: Command, *, timeout: float) -> asyncio.Future[Command]:
        told = self._asked(command)
        answer = super().start_request(command, timeout=timeout)
        if told is not None:
            answer.add_done_callback(lambda done: told(_result(done)))
        return answer

    def send_one_way(self, command: Command) -> None:
        told = self._asked(command)
        super().send_one_way(command)
        if told is not None:
            told(None)

    def _asked(self, command: Command) -> Told | None:
        # Its own: a caller may use one mapping for several requests.
        command.fields = dict(command.fields or {})
        return self._watch(self.peer, command)


def _result(done: asyncio.Future[Command]) -> Command | BaseException:
    if done.cancelled():
        return asyncio.CancelledError()
    return done.exception() or done.result()
