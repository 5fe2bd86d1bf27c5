"""Which messages may have ended a process, and what becomes of them.

A process that dies leaves spans of offsets that it had in hand. Any message in them may be the cause: a suspect.
Suspects are handled one at a time, so the next death has one cause. A suspect with which processes died more often than
it has retries is a dead letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from rocketapp.state.redelivery import UNLIMITED

MOST = 10_000
"""Suspects that are remembered of one death."""
FORGOTTEN_AFTER = 86_400.0
"""Seconds after which a suspect that was not met again is forgotten."""
CERTAIN = 3
"""Deaths beside messages that were in hand for the first time: then the suspect is the cause all the same."""


class Span(NamedTuple):
    """What one worker had in hand: offsets `first` to `last` of a queue, of which some may be finished."""

    queue: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Suspect:
    """A message that was in hand when a process died."""

    crashes: int
    """Deaths that count as attempts: the first one, and those with it in hand by itself."""
    alone: int
    """Those of them in which nothing else was in hand at all."""
    at: float
    """The time of the last one, in seconds since 1970."""

    def is_guilty(self, *, reconsume_times: int, retries: int) -> bool:
        """Whether it is the cause for certain, and has no attempt left."""
        is_certain = self.alone > 0 or self.crashes > CERTAIN
        return is_certain and retries != UNLIMITED and reconsume_times + self.crashes > retries


def is_spent(reconsume_times: int, retries: int) -> bool:
    """Whether a popped message has no attempt left as it arrives, so that its last one cannot have had an end.

    A handler that fails for the last time makes a dead letter itself. Deaths count for everything that was in hand,
    also for what had not begun: so the first few do not suffice, however few retries there are.
    """
    return retries != UNLIMITED and reconsume_times > max(retries, CERTAIN)


Suspects = dict[str, dict[int, Suspect]]
"""By queue and offset."""


def after_crash(known: Mapping[str, Mapping[int, Suspect]], in_hand: Iterable[Span], now: float) -> Suspects:
    """The suspects after one more death.

    A suspect that was in hand by itself is blamed. What ran beside it is suspected as well, and will run alone like it.
    """
    spans = sorted(set(in_hand))  # several workers may take items of one run
    found: Suspects = {queue: dict(offsets) for queue, offsets in known.items()}
    blamed = [span for span in spans if span.first == span.last and span.first in found.get(span.queue, {})]
    if len(blamed) == 1:  # of two it is not known which one
        (span,) = blamed
        suspect = found[span.queue][span.first]
        found[span.queue][span.first] = Suspect(suspect.crashes + 1, suspect.alone + (len(spans) == 1), now)
        spans.remove(span)
    left = MOST
    for span in spans:
        offsets = found.setdefault(span.queue, {})
        for offset in range(span.first, min(span.last, span.first + left - 1) + 1):
            before = offsets.get(offset)
            # A death among many says nothing new about one of them.
            offsets[offset] = Suspect(1, 0, now) if before is None else replace(before, at=now)
            left -= 1
    return found


def still_suspected(known: Mapping[str, Mapping[int, Suspect]], now: float) -> Suspects:
    """The same without those that were not met for a day."""
    kept = {
        queue: {at: one for at, one in offsets.items() if one.at > now - FORGOTTEN_AFTER}
        for queue, offsets in known.items()
    }
    return {queue: offsets for queue, offsets in kept.items() if offsets}
