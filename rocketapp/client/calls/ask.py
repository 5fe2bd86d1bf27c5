"""Send a request and require success: any other response code becomes a BrokerError."""

from __future__ import annotations

from rocketapp.errors import BrokerError, KeysRefused
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.fields import Header
from rocketapp.wire.refusals import are_keys_refused


async def ask(connection: Connection, command: Command, timeout: float) -> Command:
    """The successful response. Raises BrokerError, RequestTimeoutError or ConnectionLostError."""
    response = await connection.start_request(command, timeout=timeout)
    if response.code != ResponseCode.SUCCESS:
        raise refusal(response, connection.peer)
    return response


async def answer_to(connection: Connection, code: RequestCode, timeout: float, header: Header | None = None) -> bytes:
    """The body of the successful response to a request of this code, without fields or with those of `header`."""
    fields = None if header is None else header.to_fields()
    return (await ask(connection, Command(code, fields), timeout)).body


async def ask_unless(absent: ResponseCode, connection: Connection, command: Command, timeout: float) -> Command | None:
    """The same; None for the code that means: what was asked for is not here."""
    response = await connection.start_request(command, timeout=timeout)
    if response.code == absent:
        return None
    if response.code != ResponseCode.SUCCESS:
        raise refusal(response, connection.peer)
    return response


def refusal(response: Command, address: str) -> BrokerError:
    """The error behind a response: KeysRefused when it is about access keys."""
    remark = response.remark or ""
    kind = KeysRefused if are_keys_refused(response.code, remark) else BrokerError
    return kind(response.code, remark, address)
