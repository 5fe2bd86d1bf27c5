"""Requests in flight, and which of them are overdue.

A request is taken out exactly once: when it is answered, overdue or drained. A later answer to it is ignored.
One scan of all deadlines serves many requests, so the owner needs one timer and not one per request.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

W = TypeVar("W")


class PendingRequest(NamedTuple, Generic[W]):
    """A request in flight."""

    waiter: W
    started: float
    deadline: float


class Pending(Generic[W]):
    """The requests of one connection by their id (Java: opaque)."""

    def __init__(self) -> None:
        self._waiting: dict[int, PendingRequest[W]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, opaque: int, waiting: PendingRequest[W]) -> None:
        self._waiting[opaque] = waiting

    def __contains__(self, opaque: int) -> bool:
        return opaque in self._waiting

    def answered(self, opaque: int) -> PendingRequest[W] | None:
        """Take out the request with this id; None when no request waits under it (any more)."""
        return self._waiting.pop(opaque, None)

    def overdue(self, now: float) -> list[PendingRequest[W]]:
        """Take out every request whose deadline has come."""
        late = [opaque for opaque, waiting in self._waiting.items() if waiting.deadline <= now]
        return [self._waiting.pop(opaque) for opaque in late]

    def next_deadline(self) -> float | None:
        """The earliest deadline; None when no request waits."""
        return min((waiting.deadline for waiting in self._waiting.values()), default=None)

    def drain(self) -> list[PendingRequest[W]]:
        """Take out every request."""
        drained = list(self._waiting.values())
        self._waiting.clear()
        return drained
