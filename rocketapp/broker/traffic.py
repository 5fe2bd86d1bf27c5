"""How many messages were stored and served, for administrators.

Time is an argument. `sample` is called regularly, and rates are computed between samples.
"""

from __future__ import annotations

from collections import deque

_WINDOWS = (10.0, 60.0, 600.0)


class Traffic:
    """Counters since the start, and samples of them."""

    def __init__(self) -> None:
        self.put = self.got = 0
        self._samples: deque[tuple[float, int, int]] = deque()

    def __repr__(self) -> str:
        return f"<Traffic {self.put} in, {self.got} out>"

    def sample(self, now: float) -> None:
        """Store the present counters, and drop samples older than the longest window."""
        self._samples.append((now, self.put, self.got))
        while len(self._samples) > 1 and self._samples[1][0] <= now - _WINDOWS[-1]:
            self._samples.popleft()

    def put_rates(self, now: float) -> list[float]:
        """Messages stored per second over the last 10, 60 and 600 seconds, as far as samples reach back."""
        return [self._rate(now, window, 1, self.put) for window in _WINDOWS]

    def got_rates(self, now: float) -> list[float]:
        """Messages served per second over the same windows."""
        return [self._rate(now, window, 2, self.got) for window in _WINDOWS]

    def _rate(self, now: float, window: float, column: int, count: int) -> float:
        then = next((sample for sample in self._samples if sample[0] >= now - window), None)
        if then is None or now <= then[0]:
            return 0.0
        return (count - then[column]) / (now - then[0])
