"""When messages come again that we have hidden until then. A broker wakes no request for them: it is asked in time."""

from __future__ import annotations

from heapq import heappop, heappush

LATE = 10.0
"""Seconds that a broker may be late with them."""
LEAST = 1.0
"""Seconds that a request may be held at least."""


class RetryTimes:
    """The times at which messages come again."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def __len__(self) -> int:
        return len(self._times)

    def add(self, at: float) -> None:
        """A message comes again at this time, or up to LATE seconds later."""
        heappush(self._times, at)

    def hold_for(self, now: float, longest: float) -> float:
        """Seconds that the next request may be held while there is nothing."""
        times = self._times
        while times and times[0] + LATE < now:
            heappop(times)
        if not times:
            return longest
        return min(longest, max(LEAST, times[0] - now))
