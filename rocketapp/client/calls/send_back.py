"""Hand a failed message back: the broker delivers it again later, or buries it."""

from __future__ import annotations

from rocketapp.client.calls.ask import ask
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.send_back import SendBackRequest


async def send_back(connection: Connection, request: SendBackRequest, timeout: float) -> None:
    """Done when it returns; BrokerError when the broker could not."""
    await ask(connection, Command(RequestCode.CONSUMER_SEND_MSG_BACK, request.to_fields()), timeout)
