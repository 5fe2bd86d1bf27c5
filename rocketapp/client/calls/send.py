"""Send one message, or a batch to one queue."""

from __future__ import annotations

from typing import NamedTuple

from rocketapp.client.calls.ask import refusal
from rocketapp.model.outgoing import SendStatus
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.send import SendRequest, SendResponse

_STATUS = {status.value: status for status in SendStatus}


class Sent(NamedTuple):
    """A broker stored the message: how safely, and where."""

    status: SendStatus
    response: SendResponse


async def send(
    connection: Connection, request: SendRequest, body: bytes, timeout: float, *, reply: bool = False
) -> Sent:
    """Send a message or a batch. Raises BrokerError for every response code that does not mean stored.

    `reply`: it answers a request. Stored means then that the client that asked has it.
    """
    response = await connection.start_request(command(request, body, reply=reply), timeout=timeout)
    status = _STATUS.get(response.code)
    if status is None:
        raise refusal(response, connection)
    return Sent(status, SendResponse.from_fields(response.fields))


def command(request: SendRequest, body: bytes, *, reply: bool = False) -> Command:
    code = RequestCode.SEND_BATCH_MESSAGE if request.batch else RequestCode.SEND_MESSAGE_V2
    if reply:
        code = RequestCode.SEND_REPLY_MESSAGE_V2
    return Command(code, request.to_fields(), body)
