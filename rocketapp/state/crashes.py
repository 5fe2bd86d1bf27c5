"""Which messages may have ended a process, and what becomes of them.

A process that dies leaves spans of offsets that it had in flight. Any message in them may be the cause, so all of them
are quarantined: each handler is called for one of them at a time, with ordinary messages beside it. A death with one of
them in flight blames that one. A death with several blames none, and from then on they have their turn one at a time in
the whole process, until the cause is known. A message with which processes died more often than it has retries is a
dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from rocketapp.state.redelivery import UNLIMITED

MOST = 10_000
"""Messages that are quarantined after one death."""
FORGOTTEN_AFTER = 86_400.0
"""Seconds after which a quarantined message that was not met again is forgotten."""
CERTAIN = 3
"""Deaths beside ordinary messages: after more of them, the quarantined one is the cause all the same."""


class Span(NamedTuple):
    """What one worker had in flight: offsets `first` to `last` of a queue, of which some may be finished."""

    queue: str
    first: int
    last: int
    is_late: bool = False
    """One quarantined message, whose call had lasted so long that the next one was started beside it."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A message that was in flight when a process died."""

    crashes: int
    """Deaths that count as attempts: the first one, and those for which it was blamed."""
    alone: int
    """Those of them in which nothing else was in flight at all."""
    at: float
    """The time of the last one, in seconds since 1970."""
    beside: bool = False
    """A process has died with this one and other quarantined messages in flight."""

    def is_the_cause(self, *, reconsume_times: int, retries: int) -> bool:
        """Whether it ends processes for certain, and has no attempt left."""
        is_certain = self.alone > 0 or self.crashes > CERTAIN
        return is_certain and retries != UNLIMITED and reconsume_times + self.crashes > retries


def is_spent(reconsume_times: int, retries: int) -> bool:
    """Whether a popped message has no attempt left as it arrives, so that its last one cannot have had an end.

    A handler that fails for the last time makes a dead letter itself. Deaths count for everything that was in hand,
    also for what had not begun: so the first few do not suffice, however few retries there are.
    """
    return retries != UNLIMITED and reconsume_times > max(retries, CERTAIN)


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
        if len(blamed) == 1:
            one = Quarantined(one.crashes + 1, one.alone + (len(spans) == 1), now, one.beside)
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
