"""What an error of a send-back, or of a copy that we sent, says about the copy: stored perhaps, not now, or never.

Java answers any error with a copy of its own at once (DefaultMQPushConsumerImpl.sendMessageBack); after an answer
that was lost, that makes two copies.
"""

from __future__ import annotations

from rocketapp.errors import (
    BrokerError,
    ConnectionLostError,
    NoRouteError,
    ProtocolError,
    RequestTimeoutError,
    RocketAppError,
    SendRefused,
    SendUnknown,
    TransportError,
)
from rocketapp.state.redelivery import Problem
from rocketapp.wire.codes import ResponseCode

_PERHAPS = frozenset(
    {ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT}
)
_LASTING = frozenset(
    {
        ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        ResponseCode.MESSAGE_ILLEGAL,
        ResponseCode.VERSION_NOT_SUPPORTED,
        ResponseCode.NO_PERMISSION,
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
        ResponseCode.INVALID_PARAMETER,
    }
)
# Code 1 means anything; its remark is a sentence, or the name of Java's PutMessageStatus.
_PERHAPS_REMARKS = ("FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT", "SLAVE_NOT_AVAILABLE", "perhaps stored")
_TOO_LARGE_REMARKS = ("MESSAGE_ILLEGAL", "PROPERTIES_SIZE_EXCEEDED")
_LASTING_REMARKS = ("look message by offset failed", *_TOO_LARGE_REMARKS)
_PASSING_REMARKS = ("OS_PAGE_CACHE_BUSY", "SERVICE_NOT_AVAILABLE", "CREATE_MAPPED_FILE_FAILED")


class UnsendableError(RocketAppError):
    """A copy could not be prepared, or is larger than brokers accept: nothing was sent."""


def problem_of(error: Exception) -> Problem:
    """What this error of one attempt says about the copy."""
    match error:
        case SendUnknown() | RequestTimeoutError() | ConnectionLostError() | ProtocolError():
            return Problem.UNKNOWN
        case UnsendableError():
            return Problem.LASTING
        case BrokerError():
            return _of_code(error)
        case SendRefused() | NoRouteError() | TransportError():
            return Problem.PASSING
        case _:
            return Problem.UNCLEAR


def is_too_large(error: Exception) -> bool:
    """Whether a copy with fewer properties may be stored."""
    if isinstance(error, BrokerError):
        return error.code == ResponseCode.MESSAGE_ILLEGAL or error.remark.startswith(_TOO_LARGE_REMARKS)
    return isinstance(error, UnsendableError)


def _of_code(error: BrokerError) -> Problem:
    if error.code in _PERHAPS:
        return Problem.UNKNOWN
    if error.code in _LASTING:
        return Problem.LASTING
    if error.code != ResponseCode.SYSTEM_ERROR or error.remark.startswith(_PASSING_REMARKS):
        return Problem.PASSING
    if error.remark.startswith(_LASTING_REMARKS):
        return Problem.LASTING
    return Problem.UNKNOWN if error.remark.startswith(_PERHAPS_REMARKS) else Problem.UNCLEAR
