"""Exponential backoff with jitter.

The wait doubles from `first` to `most` seconds. A random part of up to half of it is subtracted, so that many clients
that lost the same broker do not return at the same moment. The random number is an argument.
"""

from __future__ import annotations


class Backoff:
    """The waits between consecutive failures of one operation, in seconds."""

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self._failures = 0

    def next(self, chance: float) -> float:
        """The wait after one more failure; `chance` is a random number from 0 to 1."""
        # The exponent is limited, so that the power does not overflow after years of outage.
        full = min(self._most, self._first * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return full * (1.0 - 0.5 * chance)

    def reset(self) -> None:
        """The operation succeeded: start again with the first wait."""
        self._failures = 0
