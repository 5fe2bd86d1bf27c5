"""What the engine will make of what a handler returned or raised, for plugins that act on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rocketapp.consumer.ways.outcomes import failure_of
from rocketapp.model.outcome import Retry, outcomes_by_message
from rocketapp.model.subscription import Subscription


def is_done(result: object, subscription: Subscription, *, raised: bool = False) -> bool:
    """Whether one message is done, by what its handler returned, or raised: the handler's Policy included."""
    return result is None or failure_of(result, raised, "", subscription.retry) is None


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
