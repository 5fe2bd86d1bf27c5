"""Hand one stored message to one member of the group, through the broker that stores it."""

from __future__ import annotations

from rocketapp.client.calls.ask import ask
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.direct import DirectRequest, DirectResult


async def consume(connection: Connection, request: DirectRequest, timeout: float) -> DirectResult:
    """What the member made of it. A member that is gone, busy or silent is a BrokerError."""
    command = Command(RequestCode.CONSUME_MESSAGE_DIRECTLY, request.to_fields())
    return DirectResult.decode((await ask(connection, command, timeout)).body)
