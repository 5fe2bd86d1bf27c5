"""What brokers store: a message or a batch, one that failed, the end of a transaction, the recall of a delayed one."""

from __future__ import annotations

from typing import NamedTuple

from rocketapp.client.calls.ask import ask, refusal
from rocketapp.model.outgoing import SendStatus
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.recall import RecallRequest
from rocketapp.wire.requests.send import SendRequest, SendResponse
from rocketapp.wire.requests.send_back import SendBackRequest
from rocketapp.wire.requests.transactions import EndTransaction

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
        raise refusal(response, connection.peer)
    return Sent(status, SendResponse.from_fields(response.fields))


def command(request: SendRequest, body: bytes, *, reply: bool = False) -> Command:
    code = RequestCode.SEND_BATCH_MESSAGE if request.batch else RequestCode.SEND_MESSAGE_V2
    if reply:
        code = RequestCode.SEND_REPLY_MESSAGE_V2
    return Command(code, request.to_fields(), body)


async def send_back(connection: Connection, request: SendBackRequest, timeout: float) -> None:
    """Return when the broker has stored the message again. Raises BrokerError when it refused."""
    await ask(connection, RequestCode.CONSUMER_SEND_MSG_BACK, timeout, request)


def end_transaction(connection: Connection, request: EndTransaction) -> None:
    """Write it; brokers do not answer. Raises ConnectionLostError when it did not leave.

    A broker that does not get it asks for it later.
    """
    connection.send_one_way(Command(RequestCode.END_TRANSACTION, request.to_fields()))


async def recall(connection: Connection, request: RecallRequest, timeout: float) -> None:
    """Raises BrokerError when the broker does not take it back, because it is too late for example."""
    await ask(connection, RequestCode.RECALL_MESSAGE, timeout, request)
