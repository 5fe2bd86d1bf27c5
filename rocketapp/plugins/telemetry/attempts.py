"""One call of a handler as a span, and the spans of failed ones, so that a retry can link to the attempt before it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import Token
from typing import Any

from opentelemetry import context as contexts
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, Status, StatusCode

from rocketapp.plugin import DeadLetter, Message, Retry, Skip, Stop, Subscription, outcome_of
from rocketapp.plugins import handling
from rocketapp.plugins.figures import ERROR
from rocketapp.plugins.telemetry import attributes as names

_MOST = 10_000
"""Failed attempts that are remembered; the oldest is forgotten first."""
_WORDS: dict[type, str] = {
    type(None): "done",
    Skip: "skip",
    Retry: "failed",
    DeadLetter: "dead letter",
    Stop: "stop",
}
"""`rocketapp.outcome`, by what a call comes to."""


class FailedSpans:
    """Of this process: a message that is sent back may come to another one. Called from any thread."""

    def __init__(self) -> None:
        self._spans: OrderedDict[tuple[str, str], SpanContext] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, group: str, message_id: str, span: SpanContext) -> None:
        with self._lock:
            self._spans[group, message_id] = span
            self._spans.move_to_end((group, message_id))
            if len(self._spans) > _MOST:
                self._spans.popitem(last=False)

    def take(self, group: str, message_id: str) -> SpanContext | None:
        """The last failed attempt, and forget it; None when it was not here."""
        with self._lock:
            return self._spans.pop((group, message_id), None)


class Attempt:
    """One call of a handler that has a span: the current one until it ends."""

    __slots__ = ("_current", "_failed", "_messages", "_span", "_subscription", "_token")

    def __init__(
        self,
        span: Span,
        context: Context,
        messages: Sequence[Message],
        subscription: Subscription,
        failed: FailedSpans,
        *,
        in_logs: bool,
    ) -> None:
        """`context`: in which the handler runs; `failed`: where a failure is remembered; `in_logs`: lines tell it."""
        self._span, self._subscription, self._failed = span, subscription, failed
        # The handler's list is its own.
        self._messages = tuple(messages)
        is_single = subscription.batch is None and subscription.every is None
        kept = span.get_span_context().trace_flags.sampled
        trace_id = format(span.get_span_context().trace_id, "032x") if kept else ""
        handed = messages[0] if is_single else messages
        self._current: Token[handling.Handling | None] = handling.CURRENT.set((subscription, handed, trace_id, in_logs))
        self._token: Token[Context] = contexts.attach(context)

    @property
    def is_kept(self) -> bool:
        return self._span.is_recording()

    def pulled(self, messages: Sequence[Message], found: Mapping[str, Any], links: Sequence[Link]) -> None:
        """The messages of a polled call, which is about to end, and what they add to its span."""
        self._messages = tuple(messages)
        self._span.set_attributes(found)
        for link in links:
            self._span.add_link(link.context, link.attributes)

    def leave(self, result: Any, error: BaseException | None) -> None:
        """The handler has returned or raised."""
        contexts.detach(self._token)
        handling.CURRENT.reset(self._current)
        outcome = self._judged(result, error)
        self._span.set_attribute(names.OUTCOME, _WORDS[type(outcome)])
        if outcome is not None and not isinstance(outcome, Skip):
            # The outcome as the handler returned it, if it did.
            failed(self._span, error or (result if isinstance(result, BaseException) else outcome))
            if not isinstance(outcome, DeadLetter):
                self._remember()
        self._span.end()

    def _judged(self, result: Any, error: BaseException | None) -> BaseException | None:
        """What the engine makes of this call; a cancellation is a failure as far as the span is concerned."""
        if error is None:
            return outcome_of(result, self._subscription)
        return outcome_of(error, self._subscription, raised=True) if isinstance(error, Exception) else Retry()

    def _remember(self) -> None:
        span, group = self._span.get_span_context(), self._subscription.group
        if span.trace_flags.sampled:
            for message in self._messages:
                self._failed.remember(group, message.message_id, span)


def failed(span: Span, error: BaseException) -> None:
    """What the span says of a failure; the exception is one of its events."""
    if span.is_recording():
        span.set_attribute(ERROR, type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        if isinstance(error, Exception):
            span.record_exception(error)
