"""Stored messages: look them up outside of any group, or have one member consume one. Bodies are records."""

from __future__ import annotations

from rocketapp.client.calls.ask import answer_to, ask_unless
from rocketapp.errors import KeysRefused
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.direct import DirectRequest, DirectResult
from rocketapp.wire.requests.messages import UNIQUE, QueryRequest, ViewRequest


async def view(connection: Connection, physical_offset: int, timeout: float) -> bytes | None:
    """The record at this position of the broker's commit log; None when none begins there."""
    command = Command(RequestCode.VIEW_MESSAGE_BY_ID, ViewRequest("", physical_offset).to_fields())
    response = await ask_unless(ResponseCode.SYSTEM_ERROR, connection, command, timeout)
    return None if response is None else response.body


async def query(connection: Connection, request: QueryRequest, timeout: float) -> bytes:
    """The records that the broker's index has for a key; empty when it has none. Other keys may share its hash."""
    fields = request.to_fields()
    try:
        response = await _query(connection, fields, timeout)
    except KeysRefused:
        # RocketMQ 4.x checks the signature without this field. Its index knows unique ids as keys.
        del fields[UNIQUE]
        response = await _query(connection, fields, timeout)
    return b"" if response is None else response.body


async def _query(connection: Connection, fields: dict[str, str], timeout: float) -> Command | None:
    command = Command(RequestCode.QUERY_MESSAGE, fields)
    return await ask_unless(ResponseCode.QUERY_NOT_FOUND, connection, command, timeout)


async def consume_directly(connection: Connection, request: DirectRequest, timeout: float) -> DirectResult:
    """What the member made of it. A member that is gone, busy or silent is a BrokerError."""
    return DirectResult.decode(await answer_to(connection, RequestCode.CONSUME_MESSAGE_DIRECTLY, timeout, request))
