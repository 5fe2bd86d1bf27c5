"""Bytes that a sink holds: gathered, or on their way into the table."""

from __future__ import annotations

from collections.abc import Callable


class Buffer:
    """Says when the pulls of a sink have to wait, and for how long they had to. For the event loop alone."""

    def __init__(self, limit: int, now: Callable[[], float]) -> None:
        """`limit`: bytes at which pulls stop; `now`: seconds of a clock that only runs forward."""
        self.limit, self.held = limit, 0
        self._now = now
        self._paused = 0.0
        self._full_since: float | None = None

    def __repr__(self) -> str:
        return f"<Buffer {self.held} of {self.limit} bytes>"

    def holds(self, size: int) -> None:
        """It has this many bytes now."""
        self.held = size
        if size >= self.limit and self._full_since is None:
            self._full_since = self._now()
        elif size < self.limit and self._full_since is not None:
            self._paused += self._now() - self._full_since
            self._full_since = None

    @property
    def paused(self) -> float:
        """Seconds in which it was full."""
        return self._paused if self._full_since is None else self._paused + self._now() - self._full_since

    def is_full(self, share: float) -> str | None:
        """Why a queue that holds something has to wait, at this share of the limit; None when it need not."""
        if self.held < self.limit * share:
            return None
        return f"the sink holds {self.held} bytes, limit {self.limit}: half of consumer.cache_max_bytes"
