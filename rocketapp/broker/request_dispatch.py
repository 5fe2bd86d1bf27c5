"""Which processor answers which request code.

Every request gets an answer, and no request can stop the server: a refusal is answered with its code,
unreadable fields with 1, an unknown code with 3. Where access keys are asked for, this is the place where
they are checked, whatever the code. Every answer to a send contains fields, because the Java client reads MSG_REGION
and TRACE_ON from them without checking that they exist.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from rocketapp.errors import BrokerError, ProtocolError, StoreError
from rocketapp.transport.connection import Connection, not_supported
from rocketapp.wire.codes import RequestCode, ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.send import FAILURE_FIELDS

Process = Callable[[Connection, Command], Command | None]
Check = Callable[[Connection, Command], None]
"""Raises BrokerError for a request that its sender may not make."""

SENDS = frozenset(
    {
        RequestCode.SEND_MESSAGE,
        RequestCode.SEND_MESSAGE_V2,
        RequestCode.SEND_BATCH_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    }
)

_LARGE_BODIES = SENDS | {RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ}
"""A message, and the queues of a topic: these bodies may be as large as a frame."""
MOST_ANSWER_BYTES = 16_000_000
"""Clients end a connection that brings a frame of more than 16 MiB, with all that waits on it."""
_MOST_CONTROL_BYTES, _MOST_FASTJSON_BYTES = 262_144, 16_384
"""Most bytes of any other body; and of one that only the slow reader of fastjson's own syntax understands."""


class RequestDispatch:
    """Request code -> processor."""

    def __init__(self, *tables: Mapping[int, Process], check: Check | None = None) -> None:
        self._check = check
        self._processors: dict[int, Process] = {}
        for table in tables:
            for code, process in table.items():
                if code in self._processors:
                    raise ValueError(f"request code {int(code)} has two processors")
                self._processors[int(code)] = process

    def __repr__(self) -> str:
        return f"<RequestDispatch {len(self._processors)} request codes>"

    def serve(self, connection: Connection, command: Command) -> Command | None:
        """Answer one request; None when it is answered later or never."""
        process = self._processors.get(command.code)
        try:
            if process is not None and len(command.body) > _MOST_FASTJSON_BYTES:
                _check_body(command)
            if self._check is not None:
                self._check(connection, command)
            if process is None:
                return _refusal(command, not_supported(command))
            response = process(connection, command)
            if response is not None:
                check_answer(response)
            return response
        except BrokerError as error:
            return _refusal(command, Command.response(command, error.code, fields={}, remark=error.remark))
        except ProtocolError as error:
            return _refusal(command, Command.response(command, ResponseCode.SYSTEM_ERROR, fields={}, remark=str(error)))
        except StoreError as error:
            return not_stored(command, error)
        except Exception as error:
            # A bug in one processor must not affect other requests, so the error becomes the response.
            remark = f"{type(error).__name__}: {error}"
            return _refusal(command, Command.response(command, ResponseCode.SYSTEM_ERROR, fields={}, remark=remark))


def _check_body(command: Command) -> None:
    """Refuse, before it is decoded, a body that would keep the loop busy."""
    if command.code in SENDS or command.code == RequestCode.REGISTER_BROKER:  # which has a limit of its own
        return
    size = len(command.body)
    if command.code not in _LARGE_BODIES and size > _MOST_CONTROL_BYTES:
        raise ProtocolError(f"the body has {size} bytes, limit {_MOST_CONTROL_BYTES}")
    try:
        msgspec.json.decode(command.body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(f"a body of {size} bytes has to be standard JSON: {error}") from None


def check_answer(response: Command) -> None:
    """Raises BrokerError for an answer that would end its connection."""
    if len(response.body) > MOST_ANSWER_BYTES:
        problem = f"the answer has {len(response.body)} bytes, limit {MOST_ANSWER_BYTES}: ask for less at once"
        raise BrokerError(ResponseCode.SYSTEM_ERROR, problem)


def not_stored(command: Command, error: StoreError) -> Command:
    """The answer to a request whose messages or tables the store did not take, or perhaps did not."""
    code = ResponseCode.SYSTEM_ERROR if error.is_unknown else ResponseCode.SERVICE_NOT_AVAILABLE
    return _refusal(command, Command.response(command, code, fields={}, remark=str(error)))


def _refusal(command: Command, response: Command) -> Command:
    if command.code in SENDS:
        response.fields = dict(FAILURE_FIELDS)
    return response
