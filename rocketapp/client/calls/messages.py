"""Stored messages: look them up outside of any group, or have one member consume one. Bodies are records."""

from __future__ import annotations

from msgspec.structs import replace

from rocketapp.client.calls.ask import answer_to, ask_unless
from rocketapp.errors import KeysRefused
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.direct import DirectRequest, DirectResult
from rocketapp.wire.requests.messages import QueryRequest, ViewRequest


async def view(connection: Connection, physical_offset: int, timeout: float) -> bytes | None:
    """The record at this position of the broker's commit log; None when none begins there."""
    code, asked = RequestCode.VIEW_MESSAGE_BY_ID, ViewRequest("", physical_offset)
    response = await ask_unless(ResponseCode.SYSTEM_ERROR, connection, code, timeout, asked)
    return None if response is None else response.body


async def query(connection: Connection, request: QueryRequest, timeout: float) -> bytes:
    """The records that the broker's index has for a key; empty when it has none. Other keys may share its hash."""
    code, absent = RequestCode.QUERY_MESSAGE, ResponseCode.QUERY_NOT_FOUND
    try:
        response = await ask_unless(absent, connection, code, timeout, request)
    except KeysRefused:
        # RocketMQ 4.x checks the signature without this field. Its index knows unique ids as keys.
        response = await ask_unless(absent, connection, code, timeout, replace(request, unique=None))
    return b"" if response is None else response.body


async def consume_directly(connection: Connection, request: DirectRequest, timeout: float) -> DirectResult:
    """What the member made of it. A member that is gone, busy or silent is a BrokerError."""
    return DirectResult.decode(await answer_to(connection, RequestCode.CONSUME_MESSAGE_DIRECTLY, timeout, request))
