"""The outcomes of handlers: Retry, Skip, DeadLetter, Pause; Outcomes of a batch; and what `commit="manual"` decides."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import inf
from types import AsyncGeneratorType, GeneratorType
from typing import Any, Final, Literal

from rocketapp.errors import safe_text
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.numbers import is_number


class Outcome(Exception):  # noqa: N818 - raised as well as returned
    """The base class of Retry, Skip, DeadLetter and Pause. A handler may raise or return them."""

    in_place_of: BaseException | None = None
    """What was raised for one message of a batch, whose others have outcomes of their own."""


class Retry(Outcome):
    """Deliver the message again later. Every Retry counts as an attempt.

    after: seconds to wait, 0 or more. A concurrent handler's wait is rounded up to the next delay
    level (at most 2 h); an orderly handler's wait is exact. None means RocketMQ's usual delays
    (10 s, 30 s, 1 min ...), or `consumer.suspend` (1 s) for an orderly handler.
    """

    def __init__(self, after: float | None = None) -> None:
        if after is not None and not is_number(after):
            raise TypeError(f"Retry(after={after!r}): give seconds as a number, or None for the usual delays")
        if after is not None and not 0 <= after < inf:
            raise ValueError(f"Retry(after={after}): give seconds, 0 or more")
        super().__init__(after)
        self.after = after


class Park(Outcome):
    """Keep the message and start it again after `after` seconds. The attempt does not count, and no worker waits.

    For wrappers of plugins: something that will end in time stands in the message's way.
    """

    def __init__(self, after: float, reason: str = "") -> None:
        if not is_number(after) or not 0 < after < inf:
            raise ValueError(f"Park(after={after!r}): give seconds above 0")
        super().__init__(after, reason)
        self.after: float = float(after)
        self.reason: str = reason

    def __str__(self) -> str:
        return self.reason


class _Reasoned(Outcome):
    """An outcome with a reason."""

    def __init__(self, reason: object = "") -> None:
        """`reason`: a text. Of an exception it is `Class: text`, of anything else its `str`."""
        self.reason: str = _text_of(reason)
        super().__init__(self.reason)


class Skip(_Reasoned):
    """The message is done; the handler ignored it on purpose."""


class DeadLetter(_Reasoned):
    """Send the message to the group's dead-letter topic at once, with the reason as a property."""


class Pause(_Reasoned):
    """Handle no more messages of the topic until it is resumed. This message is kept, and the attempt does not count.

    The topic is paused in its group, in this process, with the reason; `app.resume(topic)` lets it go on, and so does
    a restart.
    """


_SAID = "Outcomes maps messages to outcomes"


class Outcomes(dict[Any, Outcome]):
    """The outcome of single messages of a batch: message -> Retry, Skip, DeadLetter or Pause.

    A message that is not a key is done. A plain dict of messages means the same.
    """

    def __init__(self, outcomes: Mapping[Any, Outcome] | None = None) -> None:
        super().__init__(outcomes or {})


def outcomes_by_message(result: object, messages: Collection[Any]) -> Mapping[Any, Any] | None:
    """What a handler returned for single messages: `Outcomes`, or a dict that says the same; else None.

    messages: those that the handler was given. Raises TypeError for what was surely meant as outcomes, and cannot be
    read as such: taking it as done would lose messages.
    """
    if isinstance(result, Mapping):
        if not isinstance(result, Outcomes) and not _speaks_of(result, messages):
            return None
        known = set(messages)
        for message, outcome in result.items():
            if message not in known:
                raise TypeError(f"{_SAID}: it names {message!r}, which is not a message of this batch")
            if outcome is not None and not is_outcome(outcome):
                raise TypeError(f"{_SAID}: {outcome!r} is neither Retry, Skip, DeadLetter nor Pause")
        return result
    if isinstance(result, list | tuple | set | frozenset) and any(map(is_outcome, result)):
        raise TypeError(f"{_SAID}, and the handler returned a {type(result).__name__} with outcomes in it")
    return None


def is_outcome(value: object) -> bool:
    """Whether it is an outcome, or the class of one."""
    return isinstance(value, Outcome) or (isinstance(value, type) and issubclass(value, Outcome))


def is_unawaited(value: object) -> bool:
    """Whether this is work that was not awaited: a coroutine, Future, Task, generator or any awaitable."""
    kind = type(value)
    is_future = hasattr(kind, "__await__") or hasattr(kind, "add_done_callback")
    return is_future or isinstance(value, GeneratorType | AsyncGeneratorType)


def is_plain(value: object) -> bool:
    """Whether a returned value may be published or sent as an answer: it is no outcome and no unawaited work."""
    return value is not None and not is_outcome(value) and not is_unawaited(value)


def _speaks_of(result: Mapping[Any, Any], messages: Collection[Any]) -> bool:
    return any(message in result for message in messages) or any(map(is_outcome, result.values()))


def _text_of(reason: object) -> str:
    """The reason as text, with the class of an exception."""
    if reason is None:
        return ""
    text = safe_text(reason)
    if not isinstance(reason, BaseException):
        return text
    return f"{type(reason).__name__}: {text}" if text else type(reason).__name__


COMMIT: Literal["commit"] = "commit"
Decision = Literal["commit"] | Retry
"""Commit everything so far, or handle it again after a while."""


class Decisions:
    """The decisions of one handler's running calls, by queue: a queue has one call at a time."""

    __slots__ = ("_said",)

    def __init__(self) -> None:
        self._said: dict[MessageQueue | None, Decision] = {}

    def __repr__(self) -> str:
        return f"<Decisions {self._said}>"

    def begin(self, queue: MessageQueue | None) -> None:
        """A call begins: it has decided nothing."""
        self._said.pop(queue, None)

    def say(self, queue: MessageQueue | None, decision: Decision) -> None:
        """The running call has decided; the last decision of a call counts."""
        self._said[queue] = decision

    def look(self, queue: MessageQueue | None) -> Decision | None:
        """What the running call has decided so far."""
        return self._said.get(queue)

    def take(self, queue: MessageQueue | None) -> Decision | None:
        """What the call that has ended decided; None for nothing."""
        return self._said.pop(queue, None)


FILTERED: Final = Skip("filtered")
"""Of a message that a filter refused: no handler has seen it."""
