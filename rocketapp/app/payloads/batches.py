"""Decoding a whole batch: a body that is not of the handler's type spoils only its own message.

The handler gets the messages that could be decoded; the others go to the dead letters
in the same answer. When the handler then fails, only what it was given is retried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from rocketapp.model.outcome import DeadLetter, Outcome, Outcomes, Retry, outcomes_by_message


class Decoded(NamedTuple):
    """The messages of a batch that could be decoded, and their payloads in the same order."""

    messages: list[Any]
    payloads: list[Any]


def sifted(
    call: Callable[[Decoded], Any], decode: Callable[[Any], Any], *, is_async: bool
) -> Callable[[list[Any]], Any]:
    """A callable for a list of messages, made of one for decoded ones.

    `decode` takes a message and returns its payload or raises DeadLetter.
    """

    def sift(messages: list[Any]) -> tuple[Decoded, Outcomes]:
        good = Decoded([], [])
        bad = Outcomes()
        for message in messages:
            try:
                payload = decode(message)
            except DeadLetter as dead:
                bad[message] = dead
            else:
                good.messages.append(message)
                good.payloads.append(payload)
        return good, bad

    async def call_async(messages: list[Any]) -> Any:
        good, bad = sift(messages)
        if not bad:
            return await call(good)
        if not good.messages:
            return bad
        try:
            outcome = await call(good)
        except Exception as error:
            outcome = error
        return _merged(bad, good.messages, outcome)

    def call_sync(messages: list[Any]) -> Any:
        good, bad = sift(messages)
        if not bad:
            return call(good)
        if not good.messages:
            return bad
        try:
            outcome = call(good)
        except Exception as error:
            outcome = error
        return _merged(bad, good.messages, outcome)

    return call_async if is_async else call_sync


def _merged(bad: Outcomes, good: list[Any], outcome: Any) -> Outcomes:
    """What the handler said of its messages, beside the dead letters that it never saw."""
    try:
        single = outcomes_by_message(outcome, good)
    except TypeError as error:
        single, outcome = None, error
    if single is not None:
        return Outcomes({**bad, **single})
    if isinstance(outcome, Exception) and not isinstance(outcome, Outcome):
        failed = Retry()
        failed.__cause__ = outcome
        outcome = failed
    if isinstance(outcome, Outcome):
        return Outcomes({**bad, **dict.fromkeys(good, outcome)})
    return bad
