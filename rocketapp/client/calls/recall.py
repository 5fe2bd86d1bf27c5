"""Take back a message that waits for its time."""

from __future__ import annotations

from rocketapp.client.calls.ask import ask
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.recall import RecallRequest


async def recall(connection: Connection, request: RecallRequest, timeout: float) -> None:
    """Raises BrokerError when the broker does not take it back, because it is too late for example."""
    await ask(connection, Command(RequestCode.RECALL_MESSAGE, request.to_fields()), timeout)
