"""What a handler returned or raised → done, or a failure with its reason."""

from __future__ import annotations

from types import CoroutineType

from rocketapp.model.outcome import DeadLetter, Retry, Skip
from rocketapp.state.redelivery import Failure


def failure_of(result: object, raised: bool) -> Failure | None:
    """Why an attempt failed; None when it succeeded: anything returned that is no outcome is done."""
    match result:
        case Skip():
            return None
        case Retry(after=after):
            return Failure("Retry", _cause(result), after=after)
        case DeadLetter(reason=reason):
            return Failure("DeadLetter", reason or _cause(result), dead=True)
        case BaseException() if raised:
            return Failure(type(result).__name__, _text(result))
        case CoroutineType():
            # A sync function around an async one: its code never ran, so this is anything but done.
            result.close()
            return Failure("TypeError", "the handler returned a coroutine that nobody awaits: make it `async def`")
        case _:
            return None


def _cause(outcome: BaseException) -> str:
    """What made a handler give up: `raise Retry() from error`, or within an `except`."""
    cause = outcome.__cause__ or outcome.__context__
    return f"{type(cause).__name__}: {_text(cause)}" if cause is not None else ""


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as second:
        return f"(its text raised {type(second).__name__})"
