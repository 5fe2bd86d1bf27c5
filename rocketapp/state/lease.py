"""The lease of one queue: granted, suspended, or lost; endless where no lock is needed.

The broker keeps a lock for a minute after it granted it. We rely on it for less, counted from the moment the request
was sent: whatever the network did to the answer, we stop first. A lease is suspended when the connection to its
broker was lost (a broker that restarted may have forgotten the lock), or when its time is over because the process
could not renew it. A suspended lease is asked for again before it is given up.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from rocketapp.model.snapshot import LeaseState

LIVES = 60.0
"""Seconds for which a broker keeps a lock that is not renewed."""


class Lease:
    """The broker's lock of one queue, for as long as this member relies on it."""

    __slots__ = ("_every", "_lasts", "_waiting", "asked_at", "certain_until", "is_lost", "is_suspended", "suspensions")

    def __init__(self, *, lasts: float, renew_interval: float) -> None:
        self._lasts, self._every = lasts, renew_interval
        self.asked_at: float = -inf
        """When the request left that was granted last."""
        self.certain_until: float = -inf
        """The monotonic time from which on no handler may start. A field: it is compared before every message."""
        self.is_suspended: bool = False
        """Uncertain: nothing starts before it is granted again."""
        self.suspensions: int = 0
        """How often it was suspended: between two suspensions no other member had the queue."""
        self.is_lost: bool = False
        """Refused by the broker, or given back; final."""
        self._waiting: list[Callable[[], object]] = []

    @classmethod
    def endless(cls) -> Lease:
        """The lease of a queue without a lock: it never ends. Whether the queue is still ours, fencing says."""
        lease = cls(lasts=inf, renew_interval=inf)
        lease.granted(0.0)
        return lease

    def __repr__(self) -> str:
        return "<Lease lost>" if self.is_lost else f"<Lease certain until {self.certain_until:.3f}>"

    def granted(self, sent_at: float) -> None:
        """The broker granted or renewed it; the request left at `sent_at`. An older answer changes nothing."""
        if sent_at >= self.asked_at and not self.is_lost:
            self.asked_at, self.certain_until, self.is_suspended = sent_at, sent_at + self._lasts, False
            self._decide()

    def suspend(self, now: float) -> None:
        """Make it uncertain from `now` on: only an answer to a later request counts."""
        if not self.is_lost:
            self.asked_at, self.certain_until, self.is_suspended = now, -inf, True
            self.suspensions += 1

    def lose(self) -> None:
        """The broker refused it after it had been granted, or we gave it back."""
        self.is_lost, self.certain_until = True, -inf
        self._decide()

    def when_decided(self, call: Callable[[], object]) -> None:
        """Call this once: when the lease is granted the next time or lost; at once if it is lost already."""
        self._waiting.append(call)
        if self.is_lost:
            self._decide()

    def _decide(self) -> None:
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            call()

    def state(self, now: float) -> LeaseState:
        """The state as the broker has answered so far: granted, suspended or lost."""
        if self.is_endless:
            return "none"
        return "held" if self.held(now) else "uncertain"

    @property
    def is_endless(self) -> bool:
        """Whether no lock is behind it, as for concurrent queues."""
        return self._lasts == inf

    def held(self, now: float) -> bool:
        """Whether handlers may start now."""
        return now < self.certain_until

    def renewal(self) -> float:
        """The loop time at which it is to be renewed."""
        return self.asked_at + min(self._every, self._lasts)
