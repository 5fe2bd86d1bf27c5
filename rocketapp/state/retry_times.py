"""When messages come again that we have hidden until then. A broker wakes no request for them: it is asked in time."""

from __future__ import annotations

from heapq import heappop, heappush

LATE = 10.0
"""Seconds that a broker may be late with them."""
AGAIN = 1.0
"""Seconds between two looks for one that is late."""


class RetryTimes:
    """The times at which messages come again."""

    def __init__(self) -> None:
        self._times: list[float] = []

    def __len__(self) -> int:
        return len(self._times)

    def add(self, at: float) -> None:
        """A message comes again at this time, or up to LATE seconds later."""
        heappush(self._times, at)

    def came(self, count: int, now: float) -> None:
        """`count` messages have come again: those that were due first."""
        while count and self._times and self._times[0] <= now:
            heappop(self._times)
            count -= 1

    def next_look(self, now: float) -> float | None:
        """Seconds until the broker is asked for the next one; None when none is expected."""
        times = self._times
        while times and times[0] + LATE < now:
            heappop(times)  # another member has got it
        if not times:
            return None
        return times[0] - now if times[0] > now else AGAIN
