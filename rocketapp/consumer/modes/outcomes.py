"""Turns what a handler returned or raised into done, or a failure with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import AsyncGeneratorType, CoroutineType, GeneratorType

from rocketapp.errors import safe_text
from rocketapp.model.outcome import DeadLetter, Outcome, Park, Pause, Retry, Skip, is_unawaited, outcomes_by_message
from rocketapp.model.policy import Policy
from rocketapp.model.subscription import Subscription
from rocketapp.state.redelivery import LONGEST_TEXT, Failure, is_last, under_policy
from rocketapp.user_line import file_of, log_traceback, place_of_error
from rocketapp.wire.message import Unreadable
from rocketapp.wire.record import Message


def failures_of(
    result: object, raised: bool, messages: Sequence[Message], subscription: Subscription
) -> list[Failure | None]:
    """For each message the failure, or None for done, from the result of one call for all of them."""
    home = file_of(subscription)
    if raised:
        if isinstance(result, Unreadable):
            log_traceback(result, subscription)
            failure, text = failure_of(result, raised, home), text_of(result, home)
            others = Failure("UnreadableBody", f"of another message: {text}")
            return [failure if message is result.source else others for message in messages]
        failures = [failure_of(result, raised, home, subscription.retry)] * len(messages)
        return _with_tracebacks(failures, [result] * len(messages), messages, subscription)
    try:
        single = outcomes_by_message(result, messages)
    except TypeError as error:
        # Done would be a guess: the handler meant one of its messages not to be.
        return [Failure("TypeError", str(error))] * len(messages)
    if single is None:
        return [failure_of(result, raised, home)] * len(messages)
    outcomes = [single.get(message) for message in messages]
    failures = [failure_of(outcome, False, home) for outcome in outcomes]
    raised_for = [getattr(outcome, "in_place_of", None) for outcome in outcomes]
    return _with_tracebacks(failures, raised_for, messages, subscription)


def _with_tracebacks(
    failures: list[Failure | None], raised: Sequence[object], messages: Sequence[Message], subscription: Subscription
) -> list[Failure | None]:
    """Add tracebacks: to the dead letter of a last attempt; of other attempts it is logged at DEBUG.

    Outcomes are raised on purpose: their traceback is logged at DEBUG, too.
    """
    found, logged, kept = list(failures), dict[int, BaseException](), set[int]()
    for at, (failure, error, message) in enumerate(zip(failures, raised, messages, strict=True)):
        if not isinstance(error, BaseException) or isinstance(error, Skip):
            continue
        times, retries = message.reconsume_times, subscription.retries
        if (
            failure is None
            or isinstance(error, Outcome)
            or not is_last(failure, reconsume_times=times, retries=retries)
        ):
            logged[id(error)] = error
        else:
            found[at] = replace(failure, error=error)
            kept.add(id(error))
    for key, error in logged.items():
        if key not in kept:
            log_traceback(error, subscription)
    return found


def failure_of(result: object, raised: bool, home: str = "", policy: Policy | None = None) -> Failure | None:
    """Why an attempt failed; None when the message is done: for every returned value that is neither an outcome nor
    unawaited work.

    `home`: the handler's file, so that the text of an exception can end with its line there. `policy`: what the
    handler's exceptions mean.
    """
    if isinstance(result, type) and issubclass(result, Outcome):
        result, raised = _made(result)  # `return Retry` means what `raise Retry` does
    match result:
        case Outcome():
            return _of_outcome(result, home)
        case BaseException() if raised:
            return under_policy(policy, result, Failure(type(result).__name__, text_of(result, home)))
        case _ if is_unawaited(result):
            if isinstance(result, CoroutineType):
                result.close()  # a sync function around an async one: its code never runs
            is_generator = isinstance(result, GeneratorType | AsyncGeneratorType)
            mend = "loop over it" if is_generator else "await it in an `async def`, or wait for its result"
            what = f"the handler returned work that may not be done, of type {type(result).__name__}"
            return Failure("TypeError", f"{what}: {mend}")
        case _:
            return None


def _of_outcome(outcome: Outcome, home: str) -> Failure | None:
    """The failure of an outcome, by its class: a user's subclass may lack attributes, or have any values in them."""
    if isinstance(outcome, Park):
        return Failure("Park", outcome.reason, after=outcome.after, parked=True)
    match outcome:
        case Skip():
            return None
        case Retry():
            return _of_retry(outcome, home)
        case DeadLetter():
            reason = DeadLetter(getattr(outcome, "reason", outcome)).reason
            return Failure("DeadLetter", reason or _cause(outcome, home), dead=True)
        case Pause():
            reason = Pause(getattr(outcome, "reason", outcome)).reason
            return Failure("Pause", reason or _cause(outcome, home), pause=True, parked=True)
        case _:
            return Failure(type(outcome).__name__, text_of(outcome, home))


def _of_retry(outcome: Retry, home: str) -> Failure:
    try:
        after = Retry(getattr(outcome, "after", None)).after
        return Failure("Retry", _cause(outcome, home), after=None if after is None else float(after))
    except Exception as error:
        return Failure(type(error).__name__, text_of(error, home))


def _made(kind: type[Outcome]) -> tuple[BaseException, bool]:
    """An instance of this outcome class, and whether it is instead the exception that its construction raised."""
    try:
        return kind(), False
    except Exception as error:
        return error, True


def _cause(outcome: BaseException, home: str) -> str:
    """The exception behind an outcome: `raise Retry() from error`, or one raised within an `except`."""
    cause = outcome.__cause__ or outcome.__context__
    return f"{type(cause).__name__}: {text_of(cause, home)}" if cause is not None else ""


def text_of(error: BaseException, home: str) -> str:
    """The text of an exception and where it was raised; the line stays when the text is cut."""
    text = safe_text(error)
    place = place_of_error(error, home)
    if isinstance(error, BaseExceptionGroup):
        # What a TaskGroup raises says nothing by itself.
        first: BaseException = error
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        return f"{text}: {type(first).__name__}: {text_of(first, home)}"
    if not place:
        return text
    return f"{text[: LONGEST_TEXT - len(place) - 3]} ({place})" if text else f"({place})"
