"""How long handlers and sends took, as values that travel, and the sum over processes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from rocketapp.plugins.counts import Counts, Handled, Histogram, Sent

K = TypeVar("K", Handled, Sent)
Counted = tuple[tuple[int, ...], float]
"""The buckets of a histogram, and the seconds of all together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Of one process, since its start."""

    process: tuple[tuple[Handled, Counted], ...] = ()
    send: tuple[tuple[Sent, Counted], ...] = ()
    sent: tuple[tuple[Sent, int], ...] = ()


def durations_of(counts: Counts) -> Durations:
    """What was counted up to now."""
    return Durations(process=_taken(counts.process), send=_taken(counts.send), sent=tuple(counts.sent.copy().items()))


def added(parts: Iterable[Durations]) -> Counts:
    """Several processes as one."""
    found = Counts()
    for part in parts:
        _add(found.process, part.process)
        _add(found.send, part.send)
        for which, count in part.sent:
            found.sent[which] = found.sent.get(which, 0) + count
    return found


def _taken(histograms: Mapping[K, Histogram]) -> tuple[tuple[K, Counted], ...]:
    # Threads of handlers add new ones meanwhile.
    return tuple((which, (tuple(one.buckets), one.total)) for which, one in dict(histograms).items())


def _add(histograms: dict[K, Histogram], part: Iterable[tuple[K, Counted]]) -> None:
    for which, (buckets, total) in part:
        known = histograms.setdefault(which, Histogram())
        known.buckets = [one + other for one, other in zip(known.buckets, buckets, strict=True)]
        known.total += total
