"""Which message the code that runs now belongs to: one context variable, set around a handler only when asked for.

It follows the handler into the tasks that it starts, and lives in the thread of a sync one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any, Protocol

from rocketapp.plugin import AsyncCall, Subscription, SyncCall, Wrapper
from rocketapp.plugins.trace_context import trace_id

Handling = tuple[Subscription, Any, str, bool]
"""Whose handler; its message, or the list of them with `batch=` and of a polled call; the trace id of a trace that
began here, or empty; whether log lines are to tell all this.

A plain tuple: it is made for every message.
"""

CURRENT: ContextVar[Handling | None] = ContextVar("rocketapp.handling", default=None)


def wrapper(subscription: Subscription) -> Wrapper:
    """Sets the variable around the handler of one subscription."""
    return Wrapper(for_sync=_sync(subscription), for_async=_async(subscription), polled=True)


def _sync(subscription: Subscription) -> Callable[[SyncCall], SyncCall]:
    def wrap(call: SyncCall) -> SyncCall:
        enter, leave = CURRENT.set, CURRENT.reset

        def handling(handed: Any) -> Any:
            token = enter((subscription, handed, "", True))
            try:
                return call(handed)
            finally:
                leave(token)

        return handling

    return wrap


def _async(subscription: Subscription) -> Callable[[AsyncCall], AsyncCall]:
    def wrap(call: AsyncCall) -> AsyncCall:
        enter, leave = CURRENT.set, CURRENT.reset

        async def handling(handed: Any) -> Any:
            token = enter((subscription, handed, "", True))
            try:
                return await call(handed)
            finally:
                leave(token)

        return handling

    return wrap


class Noting(Protocol):
    """What is entered around one call of a handler."""

    def returned(self, result: Any, /) -> Any:
        """Take note of what the handler returned, and return it."""
        ...


def around(begin: Callable[[Any], AbstractContextManager[Noting]], *, polled: bool = False) -> Wrapper:
    """Enters what `begin` makes of the message around each call; of a polled one the list, which grows as it runs."""

    def for_sync(call: SyncCall) -> SyncCall:
        def noted(handed: Any) -> Any:
            with begin(handed) as noting:
                return noting.returned(call(handed))

        return noted

    def for_async(call: AsyncCall) -> AsyncCall:
        async def noted(handed: Any) -> Any:
            with begin(handed) as noting:
                return noting.returned(await call(handed))

        return noted

    return Wrapper(for_sync=for_sync, for_async=for_async, polled=polled)


def fields_of(handling: Handling) -> dict[str, Any]:
    """The facts of a log line: topic, group, handler, message_id and attempt; trace_id when the message has one.

    Of a batch: the id of its first message, the highest attempt, and how many `messages` it has.
    """
    subscription, handed, began, _ = handling
    messages = handed if isinstance(handed, list) else [handed]
    fields: dict[str, Any] = {"topic": subscription.topic, "group": subscription.group}
    fields["handler"] = subscription.handler_name
    if not messages:
        return fields  # the handler has emptied its list, or has pulled nothing yet
    first = messages[0]
    fields["message_id"], fields["attempt"] = first.message_id, max(message.attempt for message in messages)
    if isinstance(handed, list):
        fields["messages"] = len(messages)
    if found := began or trace_id(first.raw_properties):
        fields["trace_id"] = found
    return fields
