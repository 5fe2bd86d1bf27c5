"""Holds back the replies of a synchronous master until a slave has what they acknowledge.

A reply waits for a position of the log, as in `flushing`, where it waited until that was durable here. One slave is
enough. A message that no slave has in time is stored all the same: its sender is told so by the code, and decides.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import NamedTuple

from rocketapp.broker.replication.master import Master
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.send import SENDS

_TOLD = SENDS | {RequestCode.CONSUMER_SEND_MSG_BACK}
"""Requests that are answered with a code when no slave has what they stored. The others just take longer."""


class _Reply(NamedTuple):
    position: int
    deadline: float
    connection: Connection
    code: int
    """Of the request, whose body is kept no longer."""
    response: Command


class ReplicatedReplies:
    """The replies that wait, in the order of positions."""

    def __init__(self, master: Master, timeout: float) -> None:
        """`timeout`: seconds that a reply waits at most."""
        self._master, self._timeout = master, timeout
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Reply] = deque()
        self._timer: asyncio.TimerHandle | None = None
        master.on_confirmed = self._confirmed

    def __repr__(self) -> str:
        return f"<ReplicatedReplies {len(self._waiting)} wait>"

    def hold(self, position: int, connection: Connection, command: Command, response: Command) -> None:
        """Send this reply when a slave has the log up to the position, at once when there is no slave."""
        replicated = self._master.replicated
        if replicated is None:
            connection.reply(_told(command.code, response, ResponseCode.SLAVE_NOT_AVAILABLE))
        elif replicated >= position:
            connection.reply(response)
        else:
            deadline = self._loop.time() + self._timeout
            self._waiting.append(_Reply(position, deadline, connection, command.code, response))
            if self._timer is None:
                self._timer = self._loop.call_at(deadline, self._late)

    def close(self) -> None:
        """Drop what waits: the server stops."""
        self._waiting.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _confirmed(self) -> None:
        replicated, waiting = self._master.replicated, self._waiting
        while waiting and replicated is not None and waiting[0].position <= replicated:
            reply = waiting.popleft()
            reply.connection.reply(reply.response)

    def _late(self) -> None:
        now, waiting = self._loop.time(), self._waiting
        while waiting and waiting[0].deadline <= now:
            _, _, connection, code, response = waiting.popleft()
            connection.reply(_told(code, response, ResponseCode.FLUSH_SLAVE_TIMEOUT))
        self._timer = self._loop.call_at(waiting[0].deadline, self._late) if waiting else None


def _told(request: int, response: Command, code: ResponseCode) -> Command:
    """The reply to what is stored here and perhaps nowhere else; a refusal stays what it is."""
    if request in _TOLD and response.code == ResponseCode.SUCCESS:
        response.code, response.remark = code, code.name
    return response
