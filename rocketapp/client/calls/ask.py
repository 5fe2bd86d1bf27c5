"""Send a request and require success: any other response code becomes a BrokerError.

A request has the fields of its header. One whose body says everything has an empty map of fields.
"""

from __future__ import annotations

from typing import Protocol

from rocketapp.errors import BrokerError, KeysRefused
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.refusals import are_keys_refused


class RequestHeader(Protocol):
    """What a request says in its fields."""

    def to_fields(self) -> dict[str, str]: ...


async def ask(
    connection: Connection, code: RequestCode, timeout: float, header: RequestHeader | None = None, *, body: bytes = b""
) -> Command:
    """The successful response. Raises BrokerError, RequestTimeoutError or ConnectionLostError."""
    fields = header.to_fields() if header is not None else {} if body else None
    response = await connection.start_request(Command(code, fields, body), timeout=timeout)
    if response.code != ResponseCode.SUCCESS:
        raise refusal(response, connection.peer)
    return response


async def answer_to(
    connection: Connection, code: RequestCode, timeout: float, header: RequestHeader | None = None
) -> bytes:
    """The body of the successful response."""
    return (await ask(connection, code, timeout, header)).body


async def ask_unless(
    absent: ResponseCode, connection: Connection, code: RequestCode, timeout: float, header: RequestHeader
) -> Command | None:
    """The successful response; None for the code that means: what was asked for is not here."""
    try:
        return await ask(connection, code, timeout, header)
    except BrokerError as error:
        if error.code != absent:
            raise
        return None


def refusal(response: Command, address: str) -> BrokerError:
    """The error behind a response: KeysRefused when it is about access keys."""
    remark = response.remark or ""
    kind = KeysRefused if are_keys_refused(response.code, remark) else BrokerError
    return kind(response.code, remark, address)
