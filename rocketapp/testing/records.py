"""What a tested app did, as values: each list of a `TestedApp` (`t.handled`, `t.retried`, `t.dead` ...) holds these.

A plugin writes them down, with the hooks that any plugin has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec

from rocketapp.app.payloads import Payloads
from rocketapp.app.publishing import PLAIN
from rocketapp.consumer.modes.outcomes import failures_of
from rocketapp.hooks.hook_types import PublishCall, PublishWrapper, Sending, Wrapper
from rocketapp.hooks.specs import hookimpl
from rocketapp.hooks.surface import Surface
from rocketapp.model import event as events
from rocketapp.model.names import DELAY_SECONDS
from rocketapp.model.outcome import FILTERED, DeadLetter, Outcome, Pause, Retry, Skip, outcomes_by_message
from rocketapp.model.outgoing import Outgoing, SendResult
from rocketapp.model.subscription import Subscription
from rocketapp.plugins.current_message import around
from rocketapp.state.redelivery import Failure
from rocketapp.testing.driver import DrivenLoop
from rocketapp.wire.message import Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a handler that is neither Retry, Skip, DeadLetter nor Pause."""

    value: Any = None
    """What the handler returned; it means nothing to the broker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """A message is done: the handler returned, or skipped it."""

    handler: str
    """`module:function`, as log lines name it."""
    message: Message
    attempt: int
    """The first is 1."""
    outcome: Done | Skip
    at: float
    """Virtual seconds since the app was started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried:
    """An attempt failed, and another one follows."""

    handler: str
    message: Message
    attempt: int
    """The attempt that failed; the first is 1."""
    delay: float
    """Seconds until the next attempt."""
    reason: str
    """As the log says it: the exception's class, text and line."""
    error: BaseException | None
    """What the handler raised, also TimeoutError by `timeout=`; None when it returned a Retry."""
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _GivenUp:
    handler: str
    message: Message
    attempts: int
    reason: str
    error: BaseException | None
    at: float


class Dead(_GivenUp):
    """A message went to the dead letters of its group."""

    __slots__ = ()


class Dropped(_GivenUp):
    """A member of a broadcast group gave a message up."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A message that the app published: its handlers, startup functions and plugins, not the test."""

    topic: str
    body: bytes
    """As it goes over the wire."""
    tag: str | None
    keys: tuple[str, ...]
    properties: Mapping[str, str] = field(hash=False)
    order_key: str | None
    delay: float
    """Seconds; 0 for none."""
    cluster: str
    """Empty for the unnamed one."""
    at: float
    _payloads: Payloads = field(default=PLAIN, repr=False, compare=False)
    """The codecs and upcasters of the app."""

    def text(self) -> str:
        """The body as text. Raises UnicodeDecodeError when it is not UTF-8."""
        return self.body.decode()

    def json(self) -> Any:
        """The body decoded from JSON. Raises msgspec.DecodeError when it is not JSON."""
        return msgspec.json.decode(self.body)

    def payload(self, kind: type[T]) -> T:
        """The body as a handler with an argument of this type would get it. Raises what its decoder raises."""
        if not self._payloads.takes(kind):
            raise TypeError(f"{kind!r} is not a type that a handler can ask for as its payload")
        decoded: T = self._payloads.reader(kind).read(self, self.body)
        return decoded


def published_of(message: Outgoing, cluster: str, at: float, payloads: Payloads) -> Published:
    """The record of one message. `payloads`: those of the app that published it."""
    return Published(
        topic=message.topic,
        body=message.body,
        tag=message.tag,
        keys=tuple(message.keys),
        properties=message.properties,
        order_key=message.order_key,
        delay=DELAY_SECONDS[message.delay_level - 1] if message.delay_level else message.delay,
        cluster=cluster,
        at=at,
        _payloads=payloads,
    )


def outcomes_of(
    result: Any, raised: bool, messages: Sequence[Message], subscription: Subscription
) -> list[Done | Outcome]:
    """One for each message, from what one call for all of them returned or raised.

    A value that is not an outcome is Done; an exception is the Retry, Skip, DeadLetter or Pause that it comes to, with
    the exception as its `__cause__`.
    """
    failures = failures_of(result, raised, messages, subscription)
    try:
        single = None if raised else outcomes_by_message(result, messages)
    except TypeError:
        single = None  # what looks like outcomes and is not: the failures say so
    return [
        _outcome(result if single is None else single.get(message), raised, failure)
        for message, failure in zip(messages, failures, strict=True)
    ]


def _outcome(said: Any, raised: bool, failure: Failure | None) -> Done | Outcome:
    if isinstance(said, type) and issubclass(said, Outcome):
        said = said()
    if isinstance(said, Outcome):
        return said
    cause = said if raised and isinstance(said, BaseException) else None
    outcome: Outcome
    if failure is None:
        if cause is None:
            return Done(said)
        outcome = Skip(cause)
    elif failure.dead:
        outcome = DeadLetter(str(failure))
    elif failure.pause:
        outcome = Pause(str(failure))
    else:
        outcome = Retry(failure.after)
        cause = cause or TypeError(failure.text)
    outcome.__cause__ = cause
    return outcome


BY_TEST: ContextVar[bool] = ContextVar("published by the test", default=False)
_Key = tuple[str, str, int]
"""Handler, message id and attempt."""
_Call = tuple[Message, int]
"""A message, and its attempt: an orderly one is the same object at the next attempt."""


class Recorder:
    """The plugin that writes down what the app under test does."""

    def __init__(self, loop: DrivenLoop, payloads: Payloads) -> None:
        """`payloads`: those of the app."""
        self._loop, self._payloads = loop, payloads
        self.handled: list[Handled] = []
        self.retried: list[Retried] = []
        self.dead: list[Dead] = []
        self.dropped: list[Dropped] = []
        self.published: list[Published] = []
        self._open: dict[str, Published] = {}
        """Messages of transactions that are not committed, by id."""
        self._raised: dict[_Key, BaseException] = {}
        """What calls have raised, until the engine says what becomes of their messages."""

    def committed(self, message_id: str) -> None:
        """A broker has committed the message of a transaction: now it is published."""
        if (one := self._open.pop(message_id, None)) is not None:
            self.published.append(replace(one, at=self._loop.time()))

    @hookimpl
    def observe_events(self, app: Surface) -> events.Observe:
        return self._observe

    @hookimpl
    def handler_wrapper(self, subscription: Subscription) -> Wrapper:
        loop = self._loop

        def begin(item: Any) -> tuple[Any, list[_Call]]:
            if subscription.is_async:  # of the others the loop counts the threads
                loop.calls += 1
            return item, _calls(item, subscription)

        def end(begun: tuple[Any, list[_Call]], result: Any, error: BaseException | None) -> None:
            if subscription.is_async:
                loop.calls -= 1
            # Of a polled call there were none at first: now it has pulled its messages.
            calls = begun[1] or _calls(begun[0], subscription)
            for message, attempt in calls:
                key = subscription.handler_name, message.message_id, attempt
                self._raised.pop(key, None)
                if error is not None:
                    self._raised[key] = error
            if error is None or isinstance(error, Exception):
                self._done(calls, _outcomes(calls, result, error, subscription), subscription)

        return around(begin, end, polled=True)

    @hookimpl(trylast=True)
    def publish_wrapper(self, app: Surface) -> PublishWrapper:
        return self._recording_publish

    def _recording_publish(self, call: PublishCall) -> PublishCall:
        async def recording(sending: Sending) -> Sequence[SendResult]:
            results = await call(sending)
            if not BY_TEST.get():
                now = self._loop.time()
                for number, message in enumerate(sending.messages):
                    one = published_of(message, sending.cluster, now, self._payloads)
                    if message.half:
                        self._open[results[number].message_id] = one
                    else:
                        self.published.append(one)
            return results

        return recording

    def _done(self, calls: list[_Call], outcomes: Sequence[Done | Outcome], subscription: Subscription) -> None:
        for (message, attempt), outcome in zip(calls, outcomes, strict=True):
            # Of the others the engine says what becomes of them; no handler has seen what a filter refused.
            if isinstance(outcome, Done | Skip) and outcome is not FILTERED:
                self.handled.append(
                    Handled(
                        handler=subscription.handler_name,
                        message=message,
                        attempt=attempt,
                        outcome=outcome,
                        at=self._loop.time(),
                    )
                )

    def _observe(self, event: events.Event) -> None:
        if not isinstance(event, events.Retried | events.DeadLettered | events.Dropped):
            return
        error = self._raised.pop((event.handler, event.message_id, event.attempt), None)
        now = self._loop.time()
        about: dict[str, Any] = {"handler": event.handler, "message": event.message, "error": error, "at": now}
        if isinstance(event, events.Retried):
            self.retried.append(Retried(attempt=event.attempt, delay=event.delay, reason=event.error, **about))
        elif isinstance(event, events.Dropped):
            self.dropped.append(Dropped(attempts=event.attempt, reason=event.reason, **about))
        else:
            self.dead.append(Dead(attempts=event.attempt, reason=event.reason, **about))


def _calls(item: Any, subscription: Subscription) -> list[_Call]:
    is_single = subscription.batch is None and subscription.every is None
    return [(message, message.attempt) for message in ([item] if is_single else item)]


def _outcomes(
    calls: list[_Call], result: Any, error: BaseException | None, subscription: Subscription
) -> Sequence[Done | Outcome]:
    """What one call says of each message. Plain results are done; only of the others it is asked what they mean."""
    messages = [message for message, _ in calls]
    if error is None and result is None and subscription.batch is None:
        return [Done()] * len(calls)
    if subscription.batch is not None or error is not None:
        return outcomes_of(result if error is None else error, error is not None, messages, subscription)
    return outcomes_of(result, False, messages[:1], subscription) * len(calls)  # of a polled call all have the same
