"""Send a failed message back: the broker stores it again for later, or as a dead letter."""

from __future__ import annotations

from rocketapp.client.calls.ask import ask
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.send_back import SendBackRequest


async def send_back(connection: Connection, request: SendBackRequest, timeout: float) -> None:
    """Return when the broker has stored the message again. Raises BrokerError when it refused."""
    await ask(connection, Command(RequestCode.CONSUMER_SEND_MSG_BACK, request.to_fields()), timeout)
