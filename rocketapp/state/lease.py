"""An orderly lock of one queue: held, due for renewal, lost.

The broker keeps a lock for 60 s after it granted it. We trust it for less, counted from
the moment the request was sent: whatever the network did to the answer, we stop first.
"""

from __future__ import annotations

from math import inf


class Lease:
    """The lock of one queue, as we may rely on it."""

    __slots__ = ("_renew_interval", "_sent_at", "_trust", "trusted_until")

    def __init__(self, *, trust: float, renew_interval: float) -> None:
        self._trust, self._renew_interval = trust, renew_interval
        self._sent_at = -inf
        self.trusted_until = -inf
        """The monotonic time from which on no handler may start. A field: it is compared before every message."""

    def __repr__(self) -> str:
        return f"<Lease trusted until {self.trusted_until:.3f}>"

    def granted(self, sent_at: float) -> None:
        """The broker granted or renewed it; the request left at `sent_at`. An older answer changes nothing."""
        if sent_at > self._sent_at:
            self._sent_at, self.trusted_until = sent_at, sent_at + self._trust

    def lost(self) -> None:
        """The broker said that it is not ours, or we gave it back."""
        self._sent_at = self.trusted_until = -inf

    def held(self, now: float) -> bool:
        """Whether a handler may start."""
        return now < self.trusted_until

    def renewal(self) -> float:
        """When to ask again."""
        return self._sent_at + self._renew_interval
