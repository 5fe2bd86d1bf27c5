"""Unfinished bytes of all queues of an app, against one limit.

Limits per queue multiply with the number of queues; this one does not. The exact sum is
taken only when what was added since the last sum could have reached the limit, so that a
pull costs an addition and not a walk over all queues.
"""

from __future__ import annotations

from typing import Protocol


class Sized(Protocol):
    """What holds bytes: a process queue."""

    @property
    def size(self) -> int: ...


class CacheBudget:
    """How much more may be pulled."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self._holders: dict[int, Sized] = {}
        self._at_most = 0

    def __repr__(self) -> str:
        return f"<CacheBudget {self.used()} of {self.limit_bytes} bytes, {len(self._holders)} queues>"

    def join(self, holder: Sized) -> None:
        """From now on these bytes count."""
        self._holders[id(holder)] = holder
        self._at_most += holder.size

    def leave(self, holder: Sized) -> None:
        """Its queue was given up: its bytes count no more."""
        self._holders.pop(id(holder), None)

    def took(self, size: int) -> None:
        """So many bytes were put into one of the queues."""
        self._at_most += size

    def used(self) -> int:
        """Bytes that all queues hold now."""
        return sum(holder.size for holder in self._holders.values())

    @property
    def full(self) -> bool:
        """Nothing more may be pulled. A single message larger than the limit still passes alone."""
        if self._at_most < self.limit_bytes:
            return False
        self._at_most = self.used()
        return self._at_most >= self.limit_bytes
