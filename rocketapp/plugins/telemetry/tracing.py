"""Spans of publishing and handling, joined across messages by their properties.

A handler's span is a child of the span that published its message; a batch's links to those of all its messages. What a
handler publishes is a child of its span. A polled call begins a trace, and links to its messages when it ends; each of
its pulls that brought messages is a child. A message whose trace is not kept gets no span: it runs under one shared
context that says so, and what its handler publishes says so too. The spans of failed calls are remembered, so that a
retry links to the attempt before it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Token
from dataclasses import replace
from functools import partial
from random import Random
from time import time_ns
from typing import Any, Final, TypeGuard

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, Tracer

from rocketapp import DeadLetter, Message, Pause, Retry, SendResult, Skip
from rocketapp.plugin import (
    Park,
    PublishCall,
    Sending,
    Subscription,
    Wrapper,
    conventions,
    events,
    outcome_of,
    outcomes_of,
)
from rocketapp.plugins import current_message
from rocketapp.plugins.telemetry import attributes as names
from rocketapp.plugins.telemetry.config import Sampling
from rocketapp.plugins.trace_context import TRACE_PARENT, carrier_of, is_sampled

KEPT: Final = contexts.create_key("rocketapp.kept")
"""In the context of a span that is to be made: the trace that it begins was chosen already."""
_BAGGAGE = b"baggage\x01"
Gate = Callable[[bytes], bool]
"""Encoded properties -> whether to make a span: decided before anything of OpenTelemetry is made."""


def gate_of(sampling: Sampling | None, random: Random) -> Gate:
    """A function that decides before the span whether to trace.

    `sampling` None: unknown, so the sampler is always asked.
    """
    if sampling is None or not sampling.parent_based:
        return lambda _raw: True
    share, chance = sampling.share, random.random

    def gate(raw: bytes) -> bool:
        sampled = is_sampled(raw)
        return chance() < share if sampled is None else sampled

    return gate


_MOST = 10_000
"""Failed attempts that are remembered; the oldest is forgotten first."""
_WORDS: dict[type, str] = {
    type(None): "done",
    Skip: "skip",
    Retry: "failed",
    DeadLetter: "dead letter",
    Pause: "pause",
    Park: "parked",
}
"""`rocketapp.outcome`, by what a call comes to."""


class FailedSpans:
    """The spans of failed attempts in this process; a message that is sent back may go elsewhere. Thread-safe."""

    def __init__(self) -> None:
        self._spans: OrderedDict[tuple[str, str], SpanContext] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, group: str, message_id: str, span: SpanContext) -> None:
        with self._lock:
            self._spans[group, message_id] = span
            self._spans.move_to_end((group, message_id))
            if len(self._spans) > _MOST:
                self._spans.popitem(last=False)

    def find(self, group: str, message_id: str) -> SpanContext | None:
        """The span of the last failed attempt; None when it was not here, or is forgotten."""
        return self._spans.get((group, message_id))

    def take(self, group: str, message_id: str) -> SpanContext | None:
        """The last failed attempt, and forget it; None when it was not here."""
        with self._lock:
            return self._spans.pop((group, message_id), None)


class Attempt:
    """One call of a handler that has a span: the current one until it ends."""

    __slots__ = ("_current", "_messages", "_span", "_subscription", "_token", "_tracing")

    def __init__(
        self, tracing: Tracing, span: Span, context: Context, messages: Sequence[Message], subscription: Subscription
    ) -> None:
        """`context`: in which the handler runs."""
        self._tracing, self._span, self._subscription = tracing, span, subscription
        # The handler's list is its own.
        self._messages = tuple(messages)
        is_single = subscription.batch is None and subscription.every is None
        kept = span.get_span_context().trace_flags.sampled
        trace_id = format(span.get_span_context().trace_id, "032x") if kept else ""
        handed = messages[0] if is_single else messages
        current = (subscription, handed, trace_id, tracing.in_logs)
        self._current: Token[current_message.Current | None] = current_message.CURRENT.set(current)
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
        current_message.CURRENT.reset(self._current)
        outcomes = self._judged(result, error)
        failures = [outcome for outcome in outcomes if _is_failure(outcome)]
        self._span.set_attribute(names.OUTCOME, _WORDS[type(failures[0] if failures else outcomes[0])])
        if failures:
            # The outcome as the handler returned it, if it did.
            failed(self._span, error or (result if isinstance(result, BaseException) else failures[0]))
            self._remember(outcomes)
        self._span.end()

    def _judged(self, result: Any, error: BaseException | None) -> Sequence[BaseException | None]:
        """What the engine makes of each message; a cancellation is a failure as far as the span is concerned."""
        subscription, messages = self._subscription, self._messages
        if error is not None:
            is_outcome = isinstance(error, Exception)
            single = outcome_of(error, subscription, raised=True) if is_outcome else Retry()
        elif result is None or subscription.batch is None:
            single = outcome_of(result, subscription)
        else:
            return [outcome_of(each, subscription) for each in outcomes_of(result, messages)]
        return [single] * max(1, len(messages))  # a polled call may have none

    def _remember(self, outcomes: Sequence[BaseException | None]) -> None:
        span, group = self._span.get_span_context(), self._subscription.group
        if span.trace_flags.sampled:
            for message, outcome in zip(self._messages, outcomes, strict=False):
                if _is_failure(outcome):
                    self._tracing.failed.remember(group, message.message_id, span)


def _is_failure(outcome: BaseException | None) -> TypeGuard[BaseException]:
    return outcome is not None and not isinstance(outcome, Skip | Park)


def failed(span: Span, error: BaseException) -> None:
    """What the span says of a failure; the exception is one of its events."""
    if span.is_recording():
        span.set_attribute(conventions.ERROR, type(error).__qualname__)
        span.set_status(StatusCode.ERROR)
        with suppress(Exception):  # the text of the user's own may raise
            span.set_status(Status(StatusCode.ERROR, f"{type(error).__name__}: {error}"))
            if isinstance(error, Exception):
                span.record_exception(error)


class Tracing:
    """The spans of one app: none before `begin`."""

    def __init__(self, random: Random, *, in_logs: bool) -> None:
        """`in_logs`: log lines of handlers carry their message."""
        self._random = random
        self.in_logs: bool = in_logs
        self.failed: FailedSpans = FailedSpans()
        self._tracer: Tracer = trace.NoOpTracer()
        self._gate: Gate = lambda _raw: False
        self._client_ids: Mapping[str, str] = {}
        self._namespace = ""
        self._in_place: set[tuple[str, str, str]] = set()
        """Group, topic and name of handlers whose failed messages stay: no broker has them back."""
        self._dropped = NonRecordingSpan(SpanContext(random.getrandbits(128) or 1, random.getrandbits(64) or 1, False))
        self._no_span = trace.set_span_in_context(self._dropped, Context())

    def begin(self, provider: trace.TracerProvider, gate: Gate, client_ids: Mapping[str, str], namespace: str) -> None:
        """The app has reached its clusters; `client_ids`: what they know it by, by cluster."""
        self._tracer = provider.get_tracer("rocketapp", schema_url=conventions.SCHEMA)
        self._gate, self._client_ids, self._namespace = gate, client_ids, namespace

    # Around handlers.

    def handler(self, subscription: Subscription) -> Wrapper:
        """What stands in front of one handler."""
        if subscription.orderly or subscription.order_by is not None or subscription.every is not None:
            self._in_place.add((subscription.group, subscription.topic, subscription.handler_name))
        if subscription.every is not None:
            return current_message.around(
                lambda pulled: (self._begin_poll(subscription, pulled), pulled),
                lambda began, result, error: self._end_poll(subscription, *began, result, error),
                polled=True,
            )
        if subscription.batch is not None:
            return current_message.around(partial(self._begin_batch, subscription), Attempt.leave)
        attach, detach = contexts.attach, contexts.detach
        enter, leave, no_span = current_message.CURRENT.set, current_message.CURRENT.reset, self._no_span
        in_logs = self.in_logs

        def begin(message: Message) -> Attempt | tuple[Token[Context], Token[current_message.Current | None]]:
            raw = message.raw_properties
            if self._gate(raw):
                return self._begin_one(message, subscription)
            token = attach(no_span if _BAGGAGE not in raw else self._with_baggage(message))
            return token, enter((subscription, message, "", in_logs))

        def end(
            began: Attempt | tuple[Token[Context], Token[current_message.Current | None]],
            result: Any,
            error: BaseException | None,
        ) -> None:
            if isinstance(began, tuple):
                leave(began[1])
                detach(began[0])
            else:
                began.leave(result, error)

        return current_message.around(begin, end)

    def _begin_poll(self, subscription: Subscription, pulled: Any) -> Attempt:
        """`pulled`: what the call has pulled so far. It is kept like a message that no trace has."""
        if not self._gate(b""):
            return self._begin_dropped(pulled, subscription)
        attempt = self._begin(pulled, subscription, Context(), self._of(subscription), [])
        pulled.around_pull = partial(self._pull, subscription, contexts.get_current())
        return attempt

    async def _pull(
        self, subscription: Subscription, context: Context, pulling: Awaitable[list[Message]]
    ) -> list[Message]:
        """`context`: that of the call, which may run in a thread."""
        began_ns = time_ns()
        messages = await pulling
        if messages:
            found = {**self._of(subscription), **conventions.OF_RECEIVE, **names.of_batch(messages)}
            name, kind = f"receive {subscription.topic}", SpanKind.CLIENT
            self._tracer.start_span(name, context, kind, found, self._origins(messages), start_time=began_ns).end()
        return messages

    def _end_poll(
        self,
        subscription: Subscription,
        attempt: Attempt,
        pulled: list[Message],
        result: Any,
        error: BaseException | None,
    ) -> None:
        if attempt.is_kept:
            attempt.pulled(pulled, names.of_batch(pulled), self._origins(pulled) + self._earlier(pulled, subscription))
        attempt.leave(result, error)

    def _begin_dropped(self, messages: list[Message], subscription: Subscription) -> Attempt:
        return Attempt(self, self._dropped, self._no_span, messages, subscription)

    def _with_baggage(self, message: Message) -> Context:
        """Baggage is for messages of traces that are not kept as well."""
        return trace.set_span_in_context(self._dropped, propagate.extract(message.properties, Context()))

    def _begin_one(self, message: Message, subscription: Subscription) -> Attempt:
        parent = propagate.extract(carrier_of(message.properties), Context())
        found = self._of(subscription)
        found.update(names.of_message(message, subscription))
        return self._begin([message], subscription, parent, found, self._earlier([message], subscription))

    def _begin_batch(self, subscription: Subscription, messages: list[Message]) -> Attempt:
        """Kept when the trace of one of its messages is."""
        kept = [message for message in messages if self._gate(message.raw_properties)]
        if not kept:
            return self._begin_dropped(messages, subscription)
        found = {**self._of(subscription), **names.of_batch(messages)}
        links = self._origins(kept) + self._earlier(messages, subscription)
        return self._begin(messages, subscription, Context(), found, links)

    def _origins(self, messages: Sequence[Message]) -> list[Link]:
        """To the spans that published them."""
        origins = [_origin(message) for message in messages]
        return [Link(origin) for origin in origins if origin.is_valid]

    def _of(self, subscription: Subscription) -> dict[str, Any]:
        client_id = self._client_ids.get(subscription.cluster, "")
        return names.of_subscription(subscription, client_id, self._namespace)

    def _earlier(self, messages: Sequence[Message], subscription: Subscription) -> list[Link]:
        """To the attempts that failed before."""
        again = [message.message_id for message in messages if message.attempt > 1]
        spans = [self.failed.take(subscription.group, message_id) for message_id in again]
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
        context = trace.set_span_in_context(span, parent)
        return Attempt(self, span, context, messages, subscription)

    # After handlers.

    def settled(self, event: events.Event) -> None:
        """A broker has a failed message back, or its dead letter: a span in the trace of the attempt, if that is kept.

        Other messages have none: their offsets are committed for many at once, with the pulls.
        """
        if isinstance(event, events.Retried) and (event.group, event.topic, event.handler) not in self._in_place:
            attempt, found = self.failed.find(event.group, event.message_id), conventions.OF_NACK
        elif isinstance(event, events.DeadLettered):
            attempt, found = self.failed.take(event.group, event.message_id), conventions.OF_DEAD_LETTER
        else:
            return
        if attempt is None:
            return
        attributes: dict[str, str | int] = {
            **found,
            conventions.DESTINATION: event.topic,
            conventions.GROUP: event.group,
            conventions.MESSAGE_ID: event.message_id,
            conventions.NAMESPACE: self._namespace,
            conventions.HANDLER: event.handler,
            names.ATTEMPT: event.attempt,
        }
        parent = trace.set_span_in_context(NonRecordingSpan(attempt), contexts.set_value(KEPT, True, Context()))
        name = f"{found[conventions.OPERATION_NAME]} {event.topic}"
        self._tracer.start_span(name, parent, SpanKind.CLIENT, attributes).end()

    # Around publishing.

    def publishing(self, call: PublishCall) -> PublishCall:
        async def traced(sending: Sending) -> Sequence[SendResult]:
            if not sending.messages:
                return await call(sending)
            if trace.get_current_span() is self._dropped:
                return await call(_with(sending, self._dropped_carrier()))
            client_id, now_ms = self._client_ids.get(sending.cluster, ""), time_ns() // 1_000_000
            span = self._tracer.start_span(
                f"send {sending.messages[0].topic}",
                kind=SpanKind.PRODUCER,
                attributes=names.of_sending(sending, client_id, self._namespace, now_ms=now_ms),
            )
            carrier: dict[str, str] = {}
            propagate.inject(carrier, trace.set_span_in_context(span))
            try:
                results = await call(_with(sending, carrier))
            except BaseException as error:
                failed(span, error)
                raise
            else:
                if results and span.is_recording():
                    span.set_attributes(names.of_results(results))
                return results
            finally:
                span.end()

        return traced

    def _dropped_carrier(self) -> dict[str, str]:
        """The trace of the message in flight goes on, and stays one that is not kept."""
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        current = current_message.CURRENT.get()
        handed = current[1] if current is not None else None
        if isinstance(handed, Message) and is_sampled(handed.raw_properties) is not None:
            known = carrier_of(handed.properties)
            carrier.update({name: known[name] for name in (TRACE_PARENT, "tracestate") if name in known})
        else:
            random = self._random.getrandbits
            carrier[TRACE_PARENT] = f"00-{random(128) or 1:032x}-{random(64) or 1:016x}-00"
        return carrier


def _origin(message: Message) -> SpanContext:
    return trace.get_current_span(propagate.extract(carrier_of(message.properties), Context())).get_span_context()


def _with(sending: Sending, carrier: Mapping[str, str]) -> Sending:
    """Every message carries the context, in place of one that it was given."""
    messages = [replace(each, properties={**each.properties, **carrier}) for each in sending.messages]
    return replace(sending, messages=messages)
