"""What a tested app did, as values: each list of a `TestedApp` (`t.handled`, `t.retried`, `t.dead` ...) holds these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from rocketapp.app.payloads.payloads import Payloads
from rocketapp.app.publish.publishing import PLAIN
from rocketapp.consumer.ways.outcomes import failures_of
from rocketapp.model.names import DELAY_SECONDS
from rocketapp.model.outcome import DeadLetter, Outcome, Retry, Skip, Stop, outcomes_by_message
from rocketapp.model.outgoing import Outgoing
from rocketapp.model.subscription import Subscription
from rocketapp.state.redelivery import Failure
from rocketapp.wire.message import Message

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a handler that is neither Retry, Skip, DeadLetter nor Stop."""

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
    """What the handler raised; None when it returned a Retry, or when `timeout=` ended the attempt."""
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
        decoded: T = self._payloads.reader(kind).read(self)
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

    A value that is not an outcome is Done; an exception is the Retry, Skip, DeadLetter or Stop that it comes to, with
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
    elif failure.stop:
        outcome = Stop(str(failure))
    else:
        outcome = Retry(failure.after)
        cause = cause or TypeError(failure.text)
    outcome.__cause__ = cause
    return outcome
