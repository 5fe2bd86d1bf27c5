"""How many messages may start now, so that no more than `rate` a second do."""

from __future__ import annotations

import threading

_BURST = 0.1
"""Seconds whose messages may start at once after a rest."""


class TokenBucket:
    """Fills with `rate` tokens a second; starting a message takes one. Threads take them too."""

    __slots__ = ("_at", "_lock", "_most", "_rate", "_tokens")

    def __init__(self, rate: float, now: float) -> None:
        self._rate: float = rate
        self._most: float = max(1.0, rate * _BURST)
        """Tokens of a full bucket."""
        self._tokens, self._at = self._most, now
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<TokenBucket {self._rate:g}/s: {self._tokens:.1f} tokens>"

    def change(self, rate: float, now: float) -> None:
        """Fill with another rate from now on."""
        with self._lock:
            self._has_token(now)
            self._rate, self._most = rate, max(1.0, rate * _BURST)
            self._tokens = min(self._tokens, self._most)

    def take(self, now: float) -> bool:
        """Start one message, if it may."""
        with self._lock:
            is_taken = self._has_token(now)
            self._tokens -= is_taken
        return is_taken

    def spend(self, count: int) -> None:
        """This many more started with it, a batch: the next ones wait until they are paid for. Negative gives back."""
        with self._lock:
            self._tokens -= count

    def wait(self, now: float) -> float:
        """Seconds until a message may start."""
        with self._lock:
            return 0.0 if self._has_token(now) else (1.0 - self._tokens) / self._rate

    def _has_token(self, now: float) -> bool:
        if now > self._at:
            self._tokens = min(self._most, self._tokens + (now - self._at) * self._rate)
            self._at = now
        # Less than a nanosecond of refilling: a timer may end that much too early.
        return self._tokens >= 1.0 - 1e-9 * self._rate
