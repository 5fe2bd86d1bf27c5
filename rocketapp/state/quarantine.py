"""Which messages may have ended a process, and what becomes of them.

A process that dies leaves spans of offsets that it had in flight. Any message in them may be the cause, so all of them
are quarantined: each handler is called for one of them at a time, with ordinary messages beside it. A death with one of
them in flight blames that one. A death with several blames none, and from then on they have their turn one at a time in
the whole process, until the cause is known. A message with which processes died more often than it has retries is a
dead letter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Generic, NamedTuple, TypeVar

from rocketapp.state.redelivery import CERTAIN, UNLIMITED

MOST = 10_000
"""Messages that are quarantined after one death."""
FORGOTTEN_AFTER = 86_400.0
"""Seconds after which a quarantined message that was not met again is forgotten."""


class Span(NamedTuple):
    """What one worker had in flight: offsets `first` to `last` of a queue, of which some may be finished."""

    queue: str
    first: int
    last: int
    is_late: bool = False
    """One quarantined message, whose call had lasted so long that the next one was started beside it."""
    message_id: str = ""
    """The id of one quarantined message whose turn had begun; otherwise empty."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A message that was in flight when a process died."""

    crashes: int
    """Deaths that count as attempts: the first one, and those for which it was blamed."""
    sole: int
    """The crashes in which nothing else was in flight at all."""
    at: float
    """The time of the last one, in seconds since 1970."""
    beside: bool = False
    """A process has died with this one and other quarantined messages in flight."""
    message_id: str = ""
    """Of a message that had its turn: an empty broker gives its offset to another one. Empty before that."""

    def is_of(self, message_id: str) -> bool:
        """Whether this may be said of the message with this id; empty: it is not known."""
        return self.message_id == message_id or not (self.message_id and message_id)

    def is_the_cause(self, *, reconsume_times: int, retries: int) -> bool:
        """Whether it ends processes for certain, and has no attempt left."""
        is_certain = self.sole > 0 or self.crashes > CERTAIN
        return is_certain and retries != UNLIMITED and reconsume_times + self.crashes > retries


Quarantine = dict[str, dict[int, Quarantined]]
"""By queue and offset."""


def after_crash(known: Mapping[str, Mapping[int, Quarantined]], in_flight: Iterable[Span], now: float) -> Quarantine:
    """What is quarantined after one more death."""
    noted = set(in_flight)  # several workers may take messages of one run
    late = {span[:3] for span in noted if span.is_late}
    spans = sorted(span for span in noted if not span.is_late)
    found: Quarantine = {queue: dict(offsets) for queue, offsets in known.items()}
    again = [span for span in spans if span.first == span.last and span.first in found.get(span.queue, {})]
    # One that was late has not ended its process for a long time: the one that was started beside it is to blame.
    blamed = [span for span in again if span[:3] not in late] or again
    for span in blamed:
        one = found[span.queue][span.first]
        if not one.is_of(span.message_id):
            one = Quarantined(0, 0, now)  # what was known is of another message
        one = replace(one, message_id=span.message_id or one.message_id)
        if len(blamed) == 1:
            one = replace(one, crashes=one.crashes + 1, sole=one.sole + (len(spans) == 1), at=now)
        else:  # of several it is not known which one
            one = replace(one, at=now, beside=True)
        found[span.queue][span.first] = one
    left = MOST
    for span in spans:
        if span in blamed:
            continue
        offsets = found.setdefault(span.queue, {})
        for offset in range(span.first, min(span.last, span.first + left - 1) + 1):
            before = offsets.get(offset)
            # A death among many says nothing new about one of them.
            offsets[offset] = Quarantined(1, 0, now) if before is None else replace(before, at=now)
            left -= 1
    return found


def still_quarantined(known: Mapping[str, Mapping[int, Quarantined]], now: float) -> Quarantine:
    """The same without those that were not met for a day."""
    kept = {
        queue: {at: one for at, one in offsets.items() if one.at > now - FORGOTTEN_AFTER}
        for queue, offsets in known.items()
    }
    return {queue: offsets for queue, offsets in kept.items() if offsets}


class Turn:
    """One quarantined message of a process: it waits, has its turn, or has given it up."""

    __slots__ = ("handler", "is_apart", "is_waiting")

    def __init__(self, handler: int, *, is_apart: bool) -> None:
        """`handler`: the identity of what is called for it. `is_apart`: it was in flight with others at a death."""
        self.handler: int = handler
        self.is_apart: bool = is_apart
        self.is_waiting: bool = True

    @property
    def is_paused(self) -> bool:
        """Whether it would not begin if it had its turn."""
        return False


T = TypeVar("T", bound=Turn)


class Turns(Generic[T]):
    """The quarantined messages of one process, of which each handler gets one at a time.

    While some of them were in flight together at a death, those come first, and each of them alone.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, deque[T]] = {}
        """By handler, messages that wait for their turn."""
        self._apart: dict[int, deque[T]] = {}
        """The same for those that were in flight together; the handler whose turn was longest ago comes first."""
        self._running: dict[int, T] = {}
        """By handler the one that has its turn."""

    def __repr__(self) -> str:
        waiting = sum(map(len, [*self._apart.values(), *self._waiting.values()]))
        return f"<Turns: {len(self._running)} have theirs, {waiting} wait>"

    @property
    def are_apart(self) -> bool:
        """All handlers together get one at a time."""
        return self._next_apart() is not None or any(turn.is_apart for turn in self._running.values())

    def add(self, turn: T) -> None:
        """This message waits for its turn from now on."""
        self._line(turn).append(turn)

    def remove(self, turn: T) -> None:
        """It waits no more, or has no turn any more."""
        if turn.is_waiting:
            self._line(turn).remove(turn)
        elif self._running.get(turn.handler) is turn:
            del self._running[turn.handler]

    def next(self) -> T | None:
        """One that has its turn from now on."""
        if self.are_apart:
            handler = self._next_apart()
            if self._running or handler is None:
                return None
            line = self._apart[handler] = self._apart.pop(handler)
        else:
            lines = (line for handler, line in self._waiting.items() if line and handler not in self._running)
            if (found := next(lines, None)) is None:
                return None
            line = found
        turn = line.popleft()
        self._running[turn.handler], turn.is_waiting = turn, False
        return turn

    def before(self, turn: T) -> T | None:
        """The one whose end this one waits for."""
        first = next(iter(self._running.values()), None)
        return first if turn.is_apart or self.are_apart else self._running.get(turn.handler)

    def _line(self, turn: T) -> deque[T]:
        return (self._apart if turn.is_apart else self._waiting).setdefault(turn.handler, deque())

    def _next_apart(self) -> int | None:
        """The handler that gets the next one of them; those of a paused one would start together when it is resumed."""
        lines = self._apart.items()
        return next((handler for handler, line in lines if line and not line[0].is_paused), None)
