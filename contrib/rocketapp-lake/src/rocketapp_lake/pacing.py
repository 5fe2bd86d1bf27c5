"""How large batches are: larger ones while the table is slow. Values alone: the time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rocketapp_lake.batches import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    """What follows failed attempts to commit one batch."""

    most: int = 10
    """Attempts in all; then its queues are given up, and read again from where the table stands."""
    first: float = 0.5
    """Seconds to the second attempt; it doubles each time."""
    longest: float = 30.0
    """Seconds between two attempts, at most."""


STUBBORN = Retries()
LARGEST = 4
"""Times the declared limits that a batch may have."""
FULL = 0.5
"""The share of the declared rows or bytes from which on these take the time of a commit, and not the commit itself."""


class Pace:
    """The limits at which batches of one sink are cut.

    A commit that takes longer than `flush_seconds` cannot keep up with a batch each time: the limits double, so that
    fewer and larger commits do the same. Commits that take less than a quarter of it halve them again, and so do those
    of full batches: these take long because of their rows, and to wait for more of them would win nothing.
    """

    def __init__(self, limits: Limits, most_bytes: int) -> None:
        """`most_bytes`: what a batch has at most, whatever the factor is."""
        self._declared, self._most_bytes = limits, most_bytes
        self.factor = 1
        self.limits = limits

    def __repr__(self) -> str:
        return f"<Pace {self.factor} times {self._declared}>"

    def took(self, seconds: float, rows: int, size: int) -> bool:
        """A commit of these rows and bytes of records took this long. Whether the limits are others now."""
        before, declared = self.factor, self._declared
        is_full = rows >= FULL * declared.rows or size >= FULL * declared.bytes
        if is_full or seconds < declared.seconds / 4:
            self.factor = max(1, before // 2)
        elif seconds > declared.seconds:
            self.factor = min(LARGEST, 2 * before)
        self.limits = replace(
            declared,
            rows=declared.rows * self.factor,
            bytes=max(declared.bytes, min(declared.bytes * self.factor, self._most_bytes)),
            seconds=declared.seconds * self.factor,
        )
        return self.factor != before
