"""What a call means for its messages, as values: judged by the code that judges it in production."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocketapp.consumer.ways.outcomes import failures_of
from rocketapp.model.outcome import DeadLetter, Outcome, Retry, Skip, Stop, outcomes_by_message
from rocketapp.model.subscription import Subscription
from rocketapp.state.redelivery import Failure
from rocketapp.testing.records import Done
from rocketapp.wire.message import Message


def outcomes_of(
    result: Any, raised: bool, messages: Sequence[Message], subscription: Subscription
) -> list[Done | Outcome]:
    """One for each message, from what one call for all of them returned or raised.

    A value that is not an outcome is Done; an exception is the Retry, Skip, DeadLetter or Stop that it comes to, with
    the exception as its `__cause__`.
    """
    failures = failures_of(result, raised, messages, subscription)
    try:
        single = None if raised else outcomes_by_message(result, messages)
    except TypeError:
        single = None  # what looks like outcomes and is not: the failures say so
    return [
        _outcome(result if single is None else single.get(message), raised, failure)
        for message, failure in zip(messages, failures, strict=True)
    ]


def _outcome(said: Any, raised: bool, failure: Failure | None) -> Done | Outcome:
    if isinstance(said, type) and issubclass(said, Outcome):
        said = said()
    if isinstance(said, Outcome):
        return said
    cause = said if raised and isinstance(said, BaseException) else None
    outcome: Outcome
    if failure is None:
        if cause is None:
            return Done(said)
        outcome = Skip(cause)
    elif failure.dead:
        outcome = DeadLetter(str(failure))
    elif failure.stop:
        outcome = Stop(str(failure))
    else:
        outcome = Retry(failure.after)
        cause = cause or TypeError(failure.text)
    outcome.__cause__ = cause
    return outcome
