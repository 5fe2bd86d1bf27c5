"""How fast counters have grown of late, from a few looks at them: what counts pays nothing for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

_LOOKS = 6
"""Looks within the span (Java's StatsItem: one every 10 s for a minute, every 10 min for an hour)."""


class GrowthCounts(NamedTuple):
    """What has become of the messages of one topic since the start."""

    pulled: int = 0
    handled: int = 0
    failed: int = 0
    """Attempts that failed."""


class Growth:
    """The counters of all topics within a span of seconds, up to a sixth of it more."""

    def __init__(self, span: float, now: float) -> None:
        """`now`: when all counters were 0."""
        self._step = span / _LOOKS
        self._kept: deque[tuple[float, Mapping[str, GrowthCounts]]] = deque([(now, {})], maxlen=_LOOKS + 1)

    def __repr__(self) -> str:
        return f"<Growth of {len(self._kept)} looks>"

    def is_due(self, now: float) -> bool:
        """Whether it is time for the next look."""
        return now >= self._kept[-1][0] + self._step

    def look(self, counts: Mapping[str, GrowthCounts], now: float) -> None:
        """Keep what the counters of each topic are now; the oldest look is forgotten."""
        self._kept.append((now, counts))

    def since(self, topic: str, counts: GrowthCounts, now: float) -> tuple[GrowthCounts, float]:
        """By how much the counters of a topic have grown since the oldest look, and how many seconds ago that was."""
        at, kept = self._kept[0]
        before = kept.get(topic, GrowthCounts())
        grown = GrowthCounts(
            counts.pulled - before.pulled, counts.handled - before.handled, counts.failed - before.failed
        )
        return grown, now - at
