"""What the engine will make of what a handler returned or raised, for plugins that act on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocketapp.consumer.modes.outcomes import failure_of
from rocketapp.model.outcome import DeadLetter, Outcome, Park, Pause, Retry, Skip, outcomes_by_message
from rocketapp.model.subscription import Subscription, kind_of


def is_done(result: object, subscription: Subscription, *, raised: bool = False) -> bool:
    """Whether one message is done, by what its handler returned, or raised: the handler's Policy included."""
    return result is None or failure_of(result, raised, "", subscription.retry) is None


def outcome_of(result: object, subscription: Subscription, *, raised: bool = False) -> Outcome | None:
    """What one message comes to, by what its handler returned, or raised: the handler's Policy included.

    None is done; otherwise a Skip, which is done too, a Retry, a DeadLetter, a Pause or a Park. Its `__cause__` is the
    exception that was raised, unless that is such an outcome itself.
    """
    outcome = _meant(result, subscription, raised=raised)
    if raised and isinstance(result, Exception) and outcome is not None and not isinstance(result, type(outcome)):
        outcome.__cause__ = result
    return outcome


def _meant(result: object, subscription: Subscription, *, raised: bool) -> Outcome | None:
    if result is None:
        return None
    failure = failure_of(result, raised, "", subscription.retry)
    if failure is None:
        if isinstance(result, Skip) or result is Skip:
            return Skip(getattr(result, "reason", ""))
        return Skip(result) if raised else None
    if failure.dead and kind_of(subscription).by_message:  # what a polled call has pulled is pulled again
        return DeadLetter(failure.text if failure.kind == "DeadLetter" else str(failure))  # names the exception
    if failure.parked:
        return Pause(failure.text) if failure.pause else Park(failure.after or 0.0, failure.text)
    return Retry(failure.after)


def outcomes_of(result: object, messages: Sequence[Any]) -> list[Any]:
    """What a returned value says of each message of a batch: an outcome, or anything else for done.

    A value that looks like outcomes and is not says Retry of all of them, with the reason as its cause.
    """
    try:
        single = outcomes_by_message(result, messages)
    except TypeError as error:
        retry = Retry()
        retry.__cause__ = error
        return [retry] * len(messages)
    return [result] * len(messages) if single is None else [single.get(message) for message in messages]
