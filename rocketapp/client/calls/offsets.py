"""Offsets: the committed offset of a group, and the first and last offset of a queue.

A failed query is never taken for "no committed offset": such a group would begin at another position.
"""

from __future__ import annotations

from typing import NamedTuple

from rocketapp.client.calls.ask import ask, ask_unless
from rocketapp.errors import ProtocolError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.requests.offsets import (
    CommitRequest,
    OffsetResponse,
    QueryOffsetRequest,
    QueueRequest,
    SearchOffsetRequest,
)

HONOURS_SET_ZERO = 453
"""Version of a broker (V5_2_0 in Java's MQVersion) from which `setZeroIfNotFound=false` is surely honoured: brokers
4.9 and early 5.1 ignore it and answer 0 for a young queue."""


class Committed(NamedTuple):
    """A group's offset of a queue."""

    offset: int | None
    """None: the broker says that there is none."""
    is_certain: bool
    """False for a 0 of an old broker, which may mean "none" as well."""


async def query(
    connection: Connection,
    group: str,
    queue: MessageQueue,
    timeout: float,
    *,
    set_zero_if_not_found: bool | None = False,
) -> Committed:
    """The group's committed offset, and whether the answer can mean anything else.

    BrokerError, ProtocolError and TransportError all mean that the offset is not known.
    """
    request = QueryOffsetRequest(group, queue.topic, queue.queue_id, set_zero_if_not_found)
    code, absent = RequestCode.QUERY_CONSUMER_OFFSET, ResponseCode.QUERY_NOT_FOUND
    response = await ask_unless(absent, connection, code, timeout, request)
    if response is None:
        return Committed(None, is_certain=True)
    offset = OffsetResponse.from_fields(response.fields).offset
    if offset < 0:
        # Some brokers answer -1 while they are not ready. That is a failure, not "no committed offset".
        raise ProtocolError(f"{connection.peer} says that group {group} is at offset {offset} of {queue}")
    return Committed(offset, offset > 0 or response.version >= HONOURS_SET_ZERO)


async def commit(connection: Connection, group: str, queue: MessageQueue, offset: int, timeout: float) -> None:
    """Commit: everything below `offset` is done."""
    request = CommitRequest(group, queue.topic, queue.queue_id, offset)
    await ask(connection, RequestCode.UPDATE_CONSUMER_OFFSET, timeout, request)


async def max_offset(connection: Connection, queue: MessageQueue, timeout: float) -> int:
    """The offset that the next stored message gets."""
    return await _offset(connection, RequestCode.GET_MAX_OFFSET, timeout, QueueRequest(queue.topic, queue.queue_id))


async def min_offset(connection: Connection, queue: MessageQueue, timeout: float) -> int:
    """The offset of the oldest message that is still there."""
    return await _offset(connection, RequestCode.GET_MIN_OFFSET, timeout, QueueRequest(queue.topic, queue.queue_id))


async def search(connection: Connection, queue: MessageQueue, timestamp: float, timeout: float) -> int:
    """The offset of the first message that was stored at `timestamp` (seconds since 1970) or later."""
    request = SearchOffsetRequest(queue.topic, queue.queue_id, int(timestamp * 1000))
    return await _offset(connection, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, timeout, request)


async def _offset(
    connection: Connection, code: RequestCode, timeout: float, request: QueueRequest | SearchOffsetRequest
) -> int:
    return OffsetResponse.from_fields((await ask(connection, code, timeout, request)).fields).offset
