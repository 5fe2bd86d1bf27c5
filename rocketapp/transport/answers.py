"""Which method answers which request code. A method says it itself, in one line:

    @answers(RequestCode.GET_MAX_OFFSET, needs=READ_TOPIC, reads=QueueRequest)
    def max_offset(self, request: QueueRequest) -> OffsetResponse: ...

That line is a row of the server's table: how the request is read, what its sender must be allowed to do, and whether
only a master answers it. The method returns what it found. What it raises becomes a refusal, for all requests alike.
Every refusal of a send contains fields, because the Java client reads MSG_REGION and TRACE_ON from them without
checking that they exist.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from types import CoroutineType, MethodType
from typing import Any, NamedTuple, Protocol, TypeVar, cast

from rocketapp.errors import BrokerError, ProtocolError, StoreError
from rocketapp.tasks import Tasks
from rocketapp.transport.connection import Connection
from rocketapp.wire.codes import ResponseCode
from rocketapp.wire.command import Command
from rocketapp.wire.requests.send import FAILURE_FIELDS, SENDS

Process = Callable[[Connection, Command], Command | None]
"""Answers a request at once, or returns None: answered later with `Connection.reply`, or never."""


class HasFields(Protocol):
    """The fields of a response: see `wire.requests`."""

    def to_fields(self) -> dict[str, str]: ...


Found = Command | HasFields | dict[str, str] | bytes
"""The answer to a request: a whole response, or the fields or the body of one that says success."""
Answer = Found | Coroutine[Any, Any, Found] | None
"""What a method returns. A coroutine brings the answer later. None: it comes by `Connection.reply`, or never."""
_Method = TypeVar("_Method", bound=Callable[..., Answer])

DONE = b""
"""The answer that says nothing more."""


class Need(NamedTuple):
    """An action on a resource; any one of `actions` suffices."""

    kind: str
    """`Topic`, `Group` or `Cluster`."""
    name: str
    actions: tuple[str, ...]


class NeedRule(NamedTuple):
    """How the needs of a request are read from its fields (Java: the annotations of the header classes)."""

    kind: str
    fields: tuple[str, ...]
    """Each of these fields that a request has names a resource."""
    actions: tuple[str, ...]
    is_optional: bool = False
    """Whether a request may have none of the fields."""


Needs = tuple[NeedRule, ...] | Callable[[bytes], Iterable[Need]] | None
"""What a user must be allowed to do: by the fields of the request, or by its body. None: everybody is answered."""


def on_topic(*actions: str, optional: bool = False) -> NeedRule:
    return NeedRule("Topic", ("topic",), actions, optional)


def on_group(*actions: str, field: str = "consumerGroup", optional: bool = False) -> NeedRule:
    return NeedRule("Group", (field,), actions, optional)


PUBLISH: Needs = (NeedRule("Topic", ("topic", "b"), ("Pub",)),)
CONSUME: Needs = (on_topic("Sub"), on_group("Sub"))
READ_TOPIC: Needs = (on_topic("Get"),)
READ_GROUP: Needs = (on_group("Get"),)
SEE_CLUSTER: Needs = (NeedRule("Cluster", (), ("Get",)),)
CHANGE_CLUSTER: Needs = (NeedRule("Cluster", (), ("Update",)),)
KEYS_ARE_ENOUGH: Needs = ()
"""As in Apache RocketMQ 5, these are answered to every user; the name server's questions there to everybody."""
FOR_EVERYBODY: Needs = None
"""Where brokers are. Clients with wrong keys learn from those what is wrong; a refused name server is "no route"."""
UNKNOWN: Needs = (NeedRule("", (), ("Update",)),)
"""Of a code that is not served: what only an entry for everything gives."""

REFUSES, IS_BUSY = ResponseCode.SYSTEM_ERROR, ResponseCode.SYSTEM_BUSY
"""How a slave refuses what stores a message or changes a table, which only its master does (Java: PullMessageProcessor,
SendMessageProcessor, EndTransactionProcessor, AdminBrokerProcessor)."""


class Served(NamedTuple):
    """How one request code is answered."""

    process: Process
    needs: Needs
    slave: ResponseCode | None = None
    """The code with which a slave refuses; None: it answers too."""


class _Marks(NamedTuple):
    codes: tuple[int, ...]
    needs: Needs
    reads: Callable[..., Any] | None
    slave: ResponseCode | None


def answers(
    *codes: int, needs: Needs, reads: Callable[..., Any] | None = None, slave: ResponseCode | None = None
) -> Callable[[_Method], _Method]:
    """The method answers these codes. It is given the connection and the command, or what `reads` makes of that one.

    `reads`: a kind of request, which is read from the fields, or a function of the body.
    """

    def mark(method: _Method) -> _Method:
        vars(method)["answers"] = _Marks(codes, needs, reads, slave)
        return method

    return mark


def table_of(*processors: object, tasks: Tasks | None = None) -> dict[int, Served]:
    """The table of all request codes that these processors answer. `tasks`: owns the answers that come later."""
    table: dict[int, Served] = {}
    for processor in processors:
        for function in vars(type(processor)).values():
            marks = getattr(function, "answers", None)
            if isinstance(marks, _Marks):
                process = _process(MethodType(function, processor), marks.reads, tasks)
                table |= dict.fromkeys(marks.codes, Served(process, marks.needs, marks.slave))
    return table


def _process(method: Callable[..., Answer], reads: Callable[..., Any] | None, tasks: Tasks | None) -> Process:
    ask = method if reads is None else _read_first(method, reads)

    def process(connection: Connection, command: Command) -> Command | None:
        answer = ask(connection, command)
        if answer is None or type(answer) is Command:
            return answer
        if isinstance(answer, CoroutineType):  # its ABC costs a microsecond, and every send comes here
            assert tasks is not None
            tasks.start(_answer_later(connection, command, answer), f"answers request {command.code}")
            return None
        return response_of(command, cast("Found", answer))

    return process


def _read_first(method: Callable[..., Answer], reads: Callable[..., Any]) -> Callable[[Connection, Command], Answer]:
    from_fields = getattr(reads, "from_fields", None)
    if from_fields is not None:
        return lambda connection, command: method(from_fields(command.fields))
    return lambda connection, command: method(reads(command.body))


async def _answer_later(connection: Connection, command: Command, answer: Coroutine[Any, Any, Found]) -> None:
    found: Found | Exception
    try:
        found = await answer
    except Exception as error:
        found = error
    if not command.is_one_way:
        connection.reply(response_of(command, found))


def response_of(command: Command, found: Found | Exception) -> Command:
    """The response to a request that has found this, or ended so."""
    if isinstance(found, Command):
        return found
    if isinstance(found, Exception):
        return _refusal(command, found)
    if isinstance(found, bytes):
        return Command.response(command, ResponseCode.SUCCESS, fields={}, body=found)
    fields = found if isinstance(found, dict) else found.to_fields()
    return Command.response(command, ResponseCode.SUCCESS, fields=fields)


def _refusal(command: Command, error: Exception) -> Command:
    # A bug in one processor must not affect other requests, so it becomes a response too.
    code, remark = int(ResponseCode.SYSTEM_ERROR), str(error)
    if isinstance(error, BrokerError):
        code, remark = error.code, error.remark
    elif isinstance(error, StoreError):
        code = code if error.is_unknown else ResponseCode.SERVICE_NOT_AVAILABLE
    elif not isinstance(error, ProtocolError):
        remark = f"{type(error).__name__}: {error}"
    fields = dict(FAILURE_FIELDS) if command.code in SENDS else {}
    return Command.response(command, code, fields=fields, remark=remark)
