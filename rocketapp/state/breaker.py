"""When a circuit breaker opens: there are enough failures, close enough together, among enough of all calls.

What succeeded is not reported to it: it reads the handler's counter.
"""

from __future__ import annotations

from collections import deque

from rocketapp.model.policy import Breaker


class RecentFailures:
    """The latest failures of one handler, at most as many as open its breaker."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._latest: deque[tuple[float, int]] = deque(maxlen=breaker.failures)
        """Time, and how many messages had been handled until then."""

    def __repr__(self) -> str:
        return f"<RecentFailures: {len(self._latest)} of {self._breaker.failures}>"

    def add(self, now: float, handled: int) -> None:
        """Record a failed call; `handled`: messages handled since the start."""
        self._latest.append((now, handled))

    @property
    def seconds(self) -> float:
        """Seconds between the first and the last of these failures."""
        return self._latest[-1][0] - self._latest[0][0]

    @property
    def are_enough(self) -> bool:
        """Whether these failures open the breaker."""
        about, handled = self._breaker, self._latest[-1][1] - self._latest[0][1]
        if len(self._latest) < about.failures or self.seconds > about.within:
            return False
        return about.failures >= about.share * (about.failures + handled)

    def clear(self) -> None:
        """A call has succeeded as a probe, or the topic was resumed by hand."""
        self._latest.clear()
