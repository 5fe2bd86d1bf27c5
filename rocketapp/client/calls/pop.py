"""Pop messages, acknowledge them, hide them for longer; and have a broker say who pops which queues."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from rocketapp.client.calls.ask import ask, refusal
from rocketapp.model.pulled import Acks, Handle
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.assignment import AssignedQueue, AssignmentQuestion, RequestMode, decode_assigned
from rocketapp.wire.requests.pop import AckRequest, PopRequest, PopResponse, encode_acks, renewed

_NOTHING = frozenset({ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND})


class PopResult(NamedTuple):
    """What a broker answered to a pop."""

    answer: PopResponse
    body: bytes
    """Concatenated records; empty when there was nothing."""


def start(connection: Connection, request: PopRequest, timeout: float) -> asyncio.Future[Command]:
    """Send the pop; `read` decodes the response that the future brings."""
    return connection.start_request(Command(RequestCode.POP_MESSAGE, request.to_fields()), timeout=timeout)


def read(response: Command, connection: Connection) -> PopResult:
    """The result of a pop. Raises BrokerError when the broker refused it."""
    if response.code != ResponseCode.SUCCESS and response.code not in _NOTHING:
        raise refusal(response, connection.peer)
    body = response.body if response.code == ResponseCode.SUCCESS else b""
    return PopResult(PopResponse.from_fields(response.fields), body)


async def ack(connection: Connection, request: AckRequest, timeout: float) -> None:
    """Acknowledge one message; an unknown handle is a success as well."""
    await ask(connection, RequestCode.ACK_MESSAGE, timeout, request)


async def ack_all(connection: Connection, group: str, topic: str, acks: Sequence[Acks], timeout: float) -> None:
    """Acknowledge messages of one broker in one request."""
    body = encode_acks(group, topic, acks[0].handle.broker_name, acks)
    await ask(connection, RequestCode.BATCH_ACK_MESSAGE, timeout, body=body)


def start_change(connection: Connection, request: AckRequest, timeout: float) -> asyncio.Future[Command]:
    """Ask to hide a message from now on for another time; `read_change` decodes the response that the future brings."""
    command = Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, request.to_fields())
    return connection.start_request(command, timeout=timeout)


def read_change(response: Command, connection: Connection, request: AckRequest) -> Handle:
    """The handle that counts from now on. Raises BrokerError when the broker refused the change."""
    if response.code != ResponseCode.SUCCESS:
        raise refusal(response, connection.peer)
    return renewed(request.handle, response.fields)


async def assigned(connection: Connection, question: AssignmentQuestion, timeout: float) -> list[AssignedQueue] | None:
    """The queues of one member, as this broker shares them out; None when it cannot tell."""
    response = await ask(connection, RequestCode.QUERY_ASSIGNMENT, timeout, body=question.encode())
    return decode_assigned(response.body)


async def set_mode(connection: Connection, topic: str, group: str, mode: str, timeout: float) -> None:
    """Have members of the group pop, or pull, this topic at this broker. All of them pop all of its queues."""
    body = RequestMode(topic, group, mode, share_queues=0).encode()
    await ask(connection, RequestCode.SET_MESSAGE_REQUEST_MODE, timeout, body=body)
