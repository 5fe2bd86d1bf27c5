"""Which processor answers which request code.

Every request gets an answer, and no request can stop the server: an unknown code is answered with 3, and what is
refused as `transport.answers` says. Where access keys are asked for, this is the place where they are checked, whatever
the code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from rocketapp.errors import BrokerError, ProtocolError
from rocketapp.transport.answers import UNKNOWN, Needs, Served, response_of
from rocketapp.transport.connection import Connection, not_supported
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.send import SENDS

Check = Callable[[Connection, Command, Needs], None]
"""Raises BrokerError for a request that its sender may not make."""

_MOST_BODY_BYTES: Mapping[int, int] = {
    RequestCode.LOCK_BATCH_MQ: 1 << 20,
    RequestCode.UNLOCK_BATCH_MQ: 1 << 20,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: 65_536,
}
"""The queues of a member may be 19,000. The configuration of a group is read by the slow reader in any case."""
MOST_ANSWER_BYTES = 16_000_000
"""Clients end a connection that brings a frame of more than 16 MiB, with all that waits on it."""
_MOST_CONTROL_BYTES, _MOST_FASTJSON_BYTES = 262_144, 16_384
"""Most bytes of any other body; and of one that only the slow reader of fastjson's own syntax understands."""


class RequestDispatch:
    """Request code -> processor."""

    def __init__(
        self, *tables: Mapping[int, Served], store_sends: Callable[[], None] | None, check: Check | None = None
    ) -> None:
        """`store_sends` stores the sends that were served: called before anything else is. None: nobody can send."""
        self._check, self._store_sends = check, store_sends
        self._rows = {int(code): row for table in tables for code, row in table.items()}

    def __repr__(self) -> str:
        return f"<RequestDispatch {len(self._rows)} request codes>"

    def serve(self, connection: Connection, command: Command) -> Command | None:
        """Answer one request; None when it is answered later or never."""
        row = self._rows.get(command.code)
        if self._store_sends is not None and command.code not in SENDS:
            self._store_sends()
        try:
            if row is not None and len(command.body) > _MOST_FASTJSON_BYTES:
                _check_body(command)
            if self._check is not None:
                self._check(connection, command, UNKNOWN if row is None else row.needs)
            if row is None:
                return not_supported(command)
            response = row.process(connection, command)
            if response is not None:
                check_answer(response)
            return response
        except Exception as error:
            return response_of(command, error)


def of_slave(table: Mapping[int, Served]) -> dict[int, Served]:
    """The rows of a slave. What is read is answered, and offsets may be committed while the master is away."""
    refused = {code: row._replace(process=_refuse(row.slave)) for code, row in table.items() if row.slave is not None}
    return {**table, **refused}


def _refuse(code: ResponseCode) -> Callable[[Connection, Command], Command]:
    error = BrokerError(code, "[REJECTREQUEST]this broker is a slave: ask its master")
    return lambda connection, command: response_of(command, error)


def _check_body(command: Command) -> None:
    """Refuse, before it is decoded, a body that would keep the loop busy."""
    if command.code in SENDS or command.code == RequestCode.REGISTER_BROKER:  # which has a limit of its own
        return
    size, limit = len(command.body), _MOST_BODY_BYTES.get(command.code, _MOST_CONTROL_BYTES)
    if size > limit:
        raise ProtocolError(f"the body has {size} bytes, limit {limit}: name less at once")
    try:
        msgspec.json.decode(command.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a body of {size} bytes has to be standard JSON: {error}") from None


def check_answer(response: Command) -> None:
    """Raises BrokerError for an answer that would end its connection."""
    if len(response.body) > MOST_ANSWER_BYTES:
        problem = f"the answer has {len(response.body)} bytes, limit {MOST_ANSWER_BYTES}: ask for less at once"
        raise BrokerError(ResponseCode.SYSTEM_ERROR, problem)
