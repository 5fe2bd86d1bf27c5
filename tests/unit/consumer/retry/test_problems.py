"""What errors say about a copy that should have been stored."""

from __future__ import annotations

from rocketapp.consumer.retry.redelivery import UnsendableError, problem_of
from rocketapp.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    KeysRefused,
    RequestTimeoutError,
    SendRefused,
    SendUnknown,
)
from rocketapp.state.redelivery import Problem
from tests.cases import cases


@cases(
    "error, problem",
    [
        (RequestTimeoutError("a", "late"), Problem.UNKNOWN),
        (ConnectionLostError("a", "gone"), Problem.UNKNOWN),
        (SendUnknown("t", "late"), Problem.UNKNOWN),
        (BrokerError(10, "flush disk timeout"), Problem.UNKNOWN),
        (BrokerError(1, "FLUSH_SLAVE_TIMEOUT"), Problem.UNKNOWN),
        (ConnectError("a", "refused"), Problem.PASSING),
        (SendRefused("t", "busy"), Problem.PASSING),
        (BrokerError(2, "[TIMEOUT_CLEAN_QUEUE]broker busy"), Problem.PASSING),
        (BrokerError(14, "disk full"), Problem.PASSING),
        (BrokerError(1, "OS_PAGE_CACHE_BUSY"), Problem.PASSING),
        (BrokerError(1, "look message by offset failed, 7"), Problem.LASTING),
        (BrokerError(13, "the message is illegal"), Problem.LASTING),
        (BrokerError(16, "the topic[%RETRY%g] sending message is forbidden"), Problem.UNCLEAR),
        (KeysRefused(16, "check signature failed."), Problem.PASSING),
        (KeysRefused(1, "No acl config for AK"), Problem.PASSING),
        (BrokerError(26, "subscription group not exist"), Problem.LASTING),
        (UnsendableError("too large"), Problem.LASTING),
        (BrokerError(1, "java.lang.NullPointerException"), Problem.UNCLEAR),
        (KeyError("a bug"), Problem.UNCLEAR),
    ],
)
def test_what_an_error_says_about_the_copy(error: Exception, problem: Problem) -> None:
    assert problem_of(error) is problem
