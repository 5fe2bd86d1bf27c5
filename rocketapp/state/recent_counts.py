"""How much counters have grown recently, from a few samples of them: counting itself costs nothing more."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

_LOOKS = 6
"""Samples within the span (Java's StatsItem: one every 10 s for a minute, every 10 min for an hour)."""


class TopicCounts(NamedTuple):
    """The message counters of one topic since the start."""

    pulled: int = 0
    handled: int = 0
    failed: int = 0
    """Attempts that failed."""


class RecentCounts:
    """Samples of the counters of all topics over the last `span` seconds, or up to a sixth more."""

    def __init__(self, span: float, now: float) -> None:
        """`now`: when all counters were 0."""
        self._step = span / _LOOKS
        self._kept: deque[tuple[float, Mapping[str, TopicCounts]]] = deque([(now, {})], maxlen=_LOOKS + 1)

    def __repr__(self) -> str:
        return f"<RecentCounts of {len(self._kept)} looks>"

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next sample."""
        return now >= self._kept[-1][0] + self._step

    def look(self, counts: Mapping[str, TopicCounts], now: float) -> None:
        """Take a sample of the counters of each topic; the oldest sample is dropped."""
        self._kept.append((now, counts))

    def since(self, topic: str, counts: TopicCounts, now: float) -> tuple[TopicCounts, float]:
        """The growth of a topic's counters since the oldest sample, and its age in seconds."""
        at, kept = self._kept[0]
        before = kept.get(topic, TopicCounts())
        grown = TopicCounts(
            counts.pulled - before.pulled, counts.handled - before.handled, counts.failed - before.failed
        )
        return grown, now - at
