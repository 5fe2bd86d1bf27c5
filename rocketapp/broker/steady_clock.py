"""The broker's time of day, which never goes back.

Delayed messages are stored with the time at which they are due. If the clock of the machine is set back, they would be
late by as much: until the machine has caught up, this clock goes on from where it was, a little more slowly.
"""

from __future__ import annotations

from collections.abc import Callable

from rocketapp.clock import Clock

_PACE = 0.99
"""How fast it goes while the machine's clock is behind: a delay becomes longer by no more than a hundredth."""


class SteadyClock:
    """The machine's clock, but never set back."""

    def __init__(self, clock: Clock, monotonic: Callable[[], float]) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._at, self._now = monotonic(), clock.now()

    def begin_at(self, least: float) -> None:
        """Begin at this time or later: an earlier run of the broker has written it down."""
        self._now = max(self._now, least)

    def now(self) -> float:
        """Seconds since 1970-01-01 UTC."""
        at = self._monotonic()
        self._now = max(self._clock.now(), self._now + _PACE * (at - self._at))
        self._at = at
        return self._now

    @property
    def ahead(self) -> float:
        """Seconds by which the machine's clock is behind."""
        return self.now() - self._clock.now()
