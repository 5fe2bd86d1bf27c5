"""Pull messages. Sending and reading are separate, because the next pull is under way while the last one is handled."""

from __future__ import annotations

import asyncio
from typing import Literal, NamedTuple

from rocketapp.client.calls.ask import refusal
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.pull import FLAG_SUSPEND, PullRequest, PullResponse

_ANSWER_LATE = 10.0
"""Seconds that the answer to a held pull may be late: Apache RocketMQ looks at held pulls every 5 s."""
PullStatus = Literal["found", "no_new", "no_match", "illegal"]

_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: "found",
    ResponseCode.PULL_NOT_FOUND: "no_new",
    ResponseCode.PULL_RETRY_IMMEDIATELY: "no_match",
    ResponseCode.PULL_OFFSET_MOVED: "illegal",
}


class PullResult(NamedTuple):
    """What a broker answered to a pull."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    suggested_broker_id: int
    body: bytes
    """Concatenated records; empty unless the status is `found`."""


def start(connection: Connection, request: PullRequest, timeout: float) -> asyncio.Future[Command]:
    """Send the pull; `read` decodes the response that the future brings.

    `timeout`: seconds; at least 10 more than the broker may hold the pull.
    """
    if request.sys_flag & FLAG_SUSPEND:
        timeout = max(timeout, request.suspend_ms / 1000 + _ANSWER_LATE)
    return connection.start_request(Command(RequestCode.PULL_MESSAGE, request.to_fields()), timeout=timeout)


def read(response: Command, address: str = "") -> PullResult:
    """The result of a pull. Raises BrokerError when the broker refused it."""
    status = _STATUS.get(response.code)
    if status is None:
        raise refusal(response, address)
    fields = PullResponse.from_fields(response.fields)
    return PullResult(
        status, fields.next_offset, fields.min_offset, fields.max_offset, fields.suggested_broker_id, response.body
    )
