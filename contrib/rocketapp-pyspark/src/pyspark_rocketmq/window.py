"""Which pulls to send next, and which replies are due: the decisions of a pipelined read. Pure.

A broker returns at most a few dozen messages for one pull, so one pull at a time is bound by round trips. Pulls are
sent at predicted offsets instead, several at once. A reply that ends too early leaves a hole, which more pulls fill;
one that reaches further (over messages that the filter or the broker left out) makes others superfluous. The predicted
stride follows what comes back: the first pull goes alone, and tells how many messages the broker gives.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Pull(NamedTuple):
    """One pull: from where, and of how many offsets the prediction is."""

    offset: int
    span: int


class Due(NamedTuple):
    """A reply in order: of its records those with `low <= offset < high` count."""

    data: bytes
    low: int
    high: int


class Window:
    """The pulls of the offsets `start <= offset < end` of one queue."""

    def __init__(self, start: int, end: int, *, depth: int, batch: int, filtered: bool = False) -> None:
        """`depth`: most pulls in flight or waiting, beside those that fill holes. `batch`: most messages of a pull."""
        self.expected = start
        """Everything below has been given out."""
        self._end, self._depth, self._batch, self._filtered = end, depth, batch, filtered
        self._ahead = start
        self._stride, self._has_stride = batch, False
        self._in_flight: set[Pull] = set()
        self._holes: list[Pull] = []
        self._ready: dict[int, tuple[int, bytes]] = {}
        self._full, self._patience = 0, 16

    @property
    def is_done(self) -> bool:
        return self.expected >= self._end

    def to_send(self) -> list[Pull]:
        """The pulls to send now."""
        found = []
        for offset, span in self._holes:
            end = offset + span
            for first in range(max(offset, self.expected), end, self._stride):
                found.append(Pull(first, min(self._stride, end - first)))
        self._holes.clear()
        self._ahead = max(self._ahead, self.expected)
        depth = self._depth if self._has_stride else 1
        while len(self._in_flight) + len(found) + len(self._ready) < depth and self._ahead < self._end:
            found.append(Pull(self._ahead, min(self._stride, self._end - self._ahead)))
            self._ahead += found[-1].span
        self._in_flight.update(found)
        return found

    def count(self, pull: Pull) -> int:
        """How many messages to ask for."""
        return self._batch if self._filtered else min(pull.span, self._batch)

    def arrived(self, pull: Pull, next_offset: int, data: bytes) -> None:
        """A reply: the records from `pull.offset` on, and the offset behind them, which has to be larger."""
        assert next_offset > pull.offset
        self._in_flight.discard(pull)
        self._ready[pull.offset] = next_offset, data
        self._ahead = max(self._ahead, next_offset)
        limit = pull.offset + pull.span
        if next_offset < limit:
            self._holes.append(Pull(next_offset, limit - next_offset))
        self._follow(pull, next_offset - pull.offset)
        self._has_stride = True

    def due(self) -> Iterator[Due]:
        """The replies that are next in order."""
        for start in sorted(self._ready):
            if start > self.expected:
                return
            next_offset, data = self._ready.pop(start)
            if next_offset > self.expected:
                low, self.expected = self.expected, next_offset
                yield Due(data, low, min(next_offset, self._end))

    def restart(self) -> None:
        """The connection is lost, and what was in flight with it."""
        self._in_flight.clear()
        self._holes.clear()
        self._ready.clear()
        self._ahead = self.expected

    def _follow(self, pull: Pull, got: int) -> None:
        """Adapt the stride. A broker that reads from disk returns less: larger pulls are tried more and more rarely."""
        if got < pull.span:
            if got < self._stride:
                self._stride = max(1, (self._stride + got) // 2 if self._filtered else got)
                self._full, self._patience = 0, min(self._patience * 2, 1024)
        elif self._filtered:
            self._stride = max(self._stride, got)
        elif self._stride < self._batch:
            self._full += 1
            if self._full >= self._patience:
                self._stride, self._full = min(self._batch, self._stride * 2), 0
