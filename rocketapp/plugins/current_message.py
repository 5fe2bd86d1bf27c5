"""The message that the running code handles: a context variable, set around handlers only when asked for.

Tasks that a handler starts inherit it; for a sync handler it is set in its thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TypeVar

from rocketapp.plugin import AsyncCall, Subscription, SyncCall, Wrapper
from rocketapp.plugins.trace_context import trace_id

T = TypeVar("T")
Current = tuple[Subscription, Any, str, bool]
"""Whose handler; its message, or the list of them with `batch=` and of a polled call; the trace id of a trace that
began here, or empty; whether log lines are to tell all this.

A plain tuple: it is made for every message.
"""

CURRENT: ContextVar[Current | None] = ContextVar("rocketapp.current_message", default=None)


def around(
    enter: Callable[[Any], T], leave: Callable[[T, Any, BaseException | None], object], *, polled: bool = False
) -> Wrapper:
    """A wrapper that calls `enter` with the handler's item before a call, and `leave` after it.

    `leave` gets what `enter` returned, what the handler returned, and what it raised. A polled call is entered with its
    list, which grows while it runs.
    """

    def for_sync(call: SyncCall) -> SyncCall:
        def entered(handed: Any) -> Any:
            token = enter(handed)
            try:
                result = call(handed)
            except BaseException as error:
                leave(token, None, error)
                raise
            leave(token, result, None)
            return result

        return entered

    def for_async(call: AsyncCall) -> AsyncCall:
        async def entered(handed: Any) -> Any:
            token = enter(handed)
            try:
                result = await call(handed)
            except BaseException as error:
                leave(token, None, error)
                raise
            leave(token, result, None)
            return result

        return entered

    return Wrapper(for_sync=for_sync, for_async=for_async, layer="telemetry", polled=polled)


def wrapper(subscription: Subscription) -> Wrapper:
    """Sets the variable around the handler of one subscription."""
    enter, leave = CURRENT.set, CURRENT.reset
    return around(
        lambda handed: enter((subscription, handed, "", True)), lambda token, _result, _error: leave(token), polled=True
    )


def fields_of(current: Current) -> dict[str, Any]:
    """The fields of a log line: topic, group, handler, message_id and attempt; trace_id when the message has one.

    For a batch: the id of the first message, the highest attempt, and the number of `messages`.
    """
    subscription, handed, began, _ = current
    fields: dict[str, Any] = {
        "topic": subscription.topic,
        "group": subscription.group,
        "handler": subscription.handler_name,
    }
    first, attempt = handed, 0
    if isinstance(handed, list):
        if not handed:
            return fields  # the handler has emptied its list, or has pulled nothing yet
        first, attempt, fields["messages"] = handed[0], max(message.attempt for message in handed), len(handed)
    fields["message_id"], fields["attempt"] = first.message_id, attempt or first.attempt
    if found := began or trace_id(first.raw_properties):
        fields["trace_id"] = found
    return fields
