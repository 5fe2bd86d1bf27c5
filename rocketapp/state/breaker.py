"""A circuit breaker: closed, open, half open.

Closed, it remembers the times of the latest failures, and opens when there are enough of them, close enough together,
among enough of all calls. Open, nothing is called. After its pause it is half open: one message is tried, and its
outcome closes the breaker or opens it again. What succeeded is not reported to it: it reads the handler's counter.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from rocketapp.model.policy import Breaker


class Circuit(Enum):
    """Whether calls of a handler may start: all, none, or one to try."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


class BreakerState:
    """Counts the failures of one handler, and says when its topic is paused."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self.circuit: Circuit = Circuit.CLOSED
        self._failures: deque[tuple[float, int]] = deque(maxlen=breaker.failures)
        """Time, and how many messages had been handled until then."""

    def __repr__(self) -> str:
        return f"<BreakerState {self.circuit.value}: {len(self._failures)} failures>"

    def failed(self, now: float, handled: int) -> float | None:
        """A call has failed; `handled`: messages handled since the start. Seconds of the failures when it opens.

        Failures of calls that began before it opened change nothing while it is open.
        """
        if self.circuit is Circuit.OPEN:
            return None
        failures, about = self._failures, self._breaker
        failures.append((now, handled))
        since, handled_before = failures[0]
        if self.circuit is Circuit.CLOSED:
            calls = about.failures + handled - handled_before
            if len(failures) < about.failures or now - since > about.within or about.failures < about.share * calls:
                return None
        self.circuit = Circuit.OPEN
        return now - since

    def probe(self) -> None:
        """The pause is over: the next outcome decides."""
        self.circuit = Circuit.HALF_OPEN

    def close(self) -> None:
        """A call has succeeded, or the topic was resumed by hand."""
        self.circuit = Circuit.CLOSED
        self._failures.clear()
