"""What a plugin sees of every request to a broker or a name server (Java: RPCHook)."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass

from rocketapp.wire.codes import RequestCode


@dataclass(frozen=True, slots=True)
class RemoteCall:
    """One request, before it is sent."""

    address: str
    """`host:port` of the broker or name server."""
    code: int
    """RocketMQ's number of the request; `name` says it in words."""
    fields: MutableMapping[str, str]
    """The request's header fields: more may be added, such as a signature."""
    body: bytes

    @property
    def name(self) -> str:
        """`PULL_MESSAGE`, `SEND_MESSAGE_V2` and so on; the number for a code that has no name here."""
        try:
            return RequestCode(self.code).name
        except ValueError:
            return str(self.code)


@dataclass(frozen=True, slots=True)
class RemoteAnswer:
    """What came of one request."""

    code: int | None
    """RocketMQ's code of the response, 0 is success; None without a response."""
    remark: str
    """What the response says beside its code."""
    error: BaseException | None
    """Why the response is missing: the connection was lost, or the time was over. None for a one-way request."""


Answered = Callable[[RemoteAnswer], None]
"""Called once per request, on the event loop: with its answer, or for a one-way request when it is written."""
Calling = Callable[[RemoteCall], Answered | None]
"""Called once per request, on the event loop, before it is written. It returns what hears the answer, or None."""
