"""Spans of publishing and handling, joined across messages by their properties.

A handler's span is a child of the span that published its message; a batch's links to those of all its messages. What
a handler publishes is a child of its span. A message whose trace is not kept gets no span: it runs under one shared
context that says so, and what its handler publishes says so too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import Token
from dataclasses import replace
from random import Random
from typing import Any, Final

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, Tracer

from rocketapp.plugin import (
    AsyncCall,
    DeadLetter,
    Message,
    PublishCall,
    Retry,
    Sending,
    SendResult,
    Skip,
    Subscription,
    SyncCall,
    Wrapper,
)
from rocketapp.plugins import handling
from rocketapp.plugins.telemetry import attributes as names
from rocketapp.plugins.telemetry.attempts import FailedAttempts
from rocketapp.plugins.telemetry.sampling import Gate
from rocketapp.plugins.trace_context import TRACE_PARENT, carrier_of, is_sampled

KEPT: Final = contexts.create_key("rocketapp.kept")
"""In the context of a span that is to be made: the trace that it begins was chosen already."""
_BAGGAGE = b"baggage\x01"


class Tracing:
    """The spans of one app: none before `begin`."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._failed = FailedAttempts()
        self._tracer: Tracer = trace.NoOpTracer()
        self._gate: Gate = lambda _raw: False
        self._client_ids: Mapping[str, str] = {}
        self._dropped = NonRecordingSpan(SpanContext(random.getrandbits(128) or 1, random.getrandbits(64) or 1, False))
        self._no_span = trace.set_span_in_context(self._dropped, Context())

    def begin(self, provider: trace.TracerProvider, gate: Gate, client_ids: Mapping[str, str]) -> None:
        """The app has reached its clusters; `client_ids`: what they know it by, by cluster."""
        self._tracer = provider.get_tracer("rocketapp", schema_url=names.SCHEMA)
        self._gate, self._client_ids = gate, client_ids

    # Around handlers.

    def handler(self, subscription: Subscription) -> Wrapper:
        """What stands in front of one handler."""
        begin = self._begin_one if subscription.batch is None else self._begin_batch
        attach, detach = contexts.attach, contexts.detach
        enter, leave = handling.CURRENT.set, handling.CURRENT.reset

        def for_sync(call: SyncCall) -> SyncCall:
            def traced(handed: Any) -> Any:
                attempt = begin(handed, subscription)
                if attempt is not None:
                    with attempt:
                        return attempt.returned(call(handed))
                token, current = attach(self._without_span(handed)), enter((subscription, handed, ""))
                try:
                    return call(handed)
                finally:
                    leave(current)
                    detach(token)

            return traced

        def for_async(call: AsyncCall) -> AsyncCall:
            async def traced(handed: Any) -> Any:
                attempt = begin(handed, subscription)
                if attempt is not None:
                    with attempt:
                        return attempt.returned(await call(handed))
                token, current = attach(self._without_span(handed)), enter((subscription, handed, ""))
                try:
                    return await call(handed)
                finally:
                    leave(current)
                    detach(token)

            return traced

        return Wrapper(for_sync=for_sync, for_async=for_async)

    def _without_span(self, handed: Any) -> Context:
        """Baggage is for messages of traces that are not kept as well."""
        if isinstance(handed, Message) and _BAGGAGE in handed.raw_properties:
            return trace.set_span_in_context(self._dropped, propagate.extract(handed.properties, Context()))
        return self._no_span

    def _begin_one(self, message: Message, subscription: Subscription) -> Attempt | None:
        """None: no span for it."""
        if not self._gate(message.raw_properties):
            return None
        parent = propagate.extract(carrier_of(message.properties), Context())
        found = self._of(subscription)
        found.update(names.of_message(message, subscription))
        return self._begin([message], subscription, parent, found, self._earlier([message], subscription))

    def _begin_batch(self, messages: list[Message], subscription: Subscription) -> Attempt | None:
        """Kept when the trace of one of its messages is."""
        kept = [message for message in messages if self._gate(message.raw_properties)]
        if not kept:
            return None
        found = self._of(subscription)
        found[names.COUNT] = len(messages)
        found[names.ATTEMPT] = max(message.attempt for message in messages)
        origins = [_origin(message) for message in kept]
        links = [Link(origin) for origin in origins if origin.is_valid]
        return self._begin(messages, subscription, Context(), found, links + self._earlier(messages, subscription))

    def _of(self, subscription: Subscription) -> dict[str, Any]:
        return names.of_subscription(subscription, self._client_ids.get(subscription.cluster, ""))

    def _earlier(self, messages: Sequence[Message], subscription: Subscription) -> list[Link]:
        """To the attempts that failed before."""
        again = [message.message_id for message in messages if message.attempt > 1]
        spans = [self._failed.take(subscription.group, message_id) for message_id in again]
        # The messages of a batch have one earlier attempt in common.
        unique = {span.span_id: span for span in spans if span is not None}
        return [Link(span, {"rocketapp.link": "earlier attempt"}) for span in unique.values()]

    def _begin(
        self,
        messages: Sequence[Message],
        subscription: Subscription,
        parent: Context,
        found: dict[str, Any],
        links: list[Link],
    ) -> Attempt:
        span = self._tracer.start_span(
            f"process {subscription.topic}",
            contexts.set_value(KEPT, True, parent),
            SpanKind.CONSUMER,
            found,
            links,
            record_exception=False,
            set_status_on_exception=False,
        )
        return Attempt(span, trace.set_span_in_context(span, parent), messages, subscription, self._failed)

    # Around publishing.

    def publishing(self, call: PublishCall) -> PublishCall:
        async def traced(sending: Sending) -> Sequence[SendResult]:
            if not sending.messages:
                return await call(sending)
            if trace.get_current_span() is self._dropped:
                return await call(_with(sending, self._dropped_carrier()))
            span = self._tracer.start_span(
                f"send {sending.messages[0].topic}",
                kind=SpanKind.PRODUCER,
                attributes=names.of_sending(sending, self._client_ids.get(sending.cluster, "")),
            )
            carrier: dict[str, str] = {}
            propagate.inject(carrier, trace.set_span_in_context(span))
            try:
                results = await call(_with(sending, carrier))
            except BaseException as error:
                _failed(span, error)
                raise
            else:
                if sending.kind == "send" and span.is_recording():
                    span.set_attributes(names.of_result(results[0]))
                return results
            finally:
                span.end()

        return traced

    def _dropped_carrier(self) -> dict[str, str]:
        """The trace of the message in hand goes on, and stays one that is not kept."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        current = handling.CURRENT.get()
        handed = current[1] if current is not None else None
        if isinstance(handed, Message) and is_sampled(handed.raw_properties) is not None:
            known = carrier_of(handed.properties)
            carrier.update({name: known[name] for name in (TRACE_PARENT, "tracestate") if name in known})
        else:
            random = self._random.getrandbits
            carrier[TRACE_PARENT] = f"00-{random(128) or 1:032x}-{random(64) or 1:016x}-00"
        return carrier


class Attempt:
    """One call of a handler that has a span; entered, its span is the current one."""

    __slots__ = (
        "_context",
        "_current",
        "_failed",
        "_handed",
        "_messages",
        "_outcome",
        "_span",
        "_subscription",
        "_token",
    )

    def __init__(
        self,
        span: Span,
        context: Context,
        messages: Sequence[Message],
        subscription: Subscription,
        failed: FailedAttempts,
    ) -> None:
        """`context`: in which the handler runs; `failed`: where a failure is remembered."""
        self._span, self._context, self._subscription, self._failed = span, context, subscription, failed
        # The handler's list is its own.
        self._messages = tuple(messages)
        self._handed = messages if subscription.batch is not None else messages[0]
        self._outcome: Retry | DeadLetter | Skip | None = None
        self._token: Token[Context]
        self._current: Token[handling.Handling | None]

    def __enter__(self) -> None:
        trace_id = format(self._span.get_span_context().trace_id, "032x")
        self._current = handling.CURRENT.set((self._subscription, self._handed, trace_id))
        self._token = contexts.attach(self._context)

    def returned(self, result: Any) -> Any:
        """What the handler returned; the same."""
        if isinstance(result, Retry | DeadLetter | Skip):
            self._outcome = result
        return result

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        contexts.detach(self._token)
        handling.CURRENT.reset(self._current)
        problem = error or self._outcome
        if problem is None or isinstance(problem, Skip):
            self._span.set_attribute(names.OUTCOME, "done" if problem is None else "skip")
        elif isinstance(problem, DeadLetter):
            self._span.set_attribute(names.OUTCOME, "dead letter")
            _failed(self._span, problem)
        else:
            self._span.set_attribute(names.OUTCOME, "failed")
            _failed(self._span, problem)
            self._remember()
        self._span.end()

    def _remember(self) -> None:
        span, group = self._span.get_span_context(), self._subscription.group
        if span.trace_flags.sampled:
            for message in self._messages:
                self._failed.remember(group, message.message_id, span)


def _failed(span: Span, error: BaseException) -> None:
    if span.is_recording():
        span.set_attribute(names.ERROR, type(error).__qualname__)
        span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
        if isinstance(error, Exception):
            span.record_exception(error)


def _origin(message: Message) -> SpanContext:
    return trace.get_current_span(propagate.extract(carrier_of(message.properties), Context())).get_span_context()


def _with(sending: Sending, carrier: Mapping[str, str]) -> Sending:
    """Every message carries the context, in place of one that it was given."""
    messages = [replace(each, properties={**each.properties, **carrier}) for each in sending.messages]
    return replace(sending, messages=messages)
