"""Rows are gathered until a batch is cut. Values alone: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, Literal, Protocol, TypeVar

from rocketapp_pyspark.lanes import Lane, Span, Vector


class Row(Protocol):
    """What a message has that matters here."""

    @property
    def offset(self) -> int: ...

    @property
    def size(self) -> int: ...


R = TypeVar("R", bound=Row)
Reason = Literal["rows", "bytes", "age", "drain", "idle"]
_size = attrgetter("size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a batch is cut: at the first of them."""

    rows: int = 100_000
    bytes: int = 64 * 1024 * 1024
    """Of the stored records."""
    seconds: float = 30.0
    """Since the oldest row came."""


DEFAULTS = Limits()


@dataclass(frozen=True, slots=True)
class Batch(Generic[R]):
    """Rows that go into the table together."""

    rows: Mapping[Lane, Sequence[R]]
    """In offset order. A lane may have none: its span is an answer without rows."""
    spans: Mapping[Lane, Span]
    reason: Reason = "rows"

    def __len__(self) -> int:
        return sum(map(len, self.rows.values()))

    @property
    def size(self) -> int:
        return sum(row.size for rows in self.rows.values() for row in rows)

    def trimmed(self, vector: Vector) -> Batch[R]:
        """Without what lies below the vector. Lanes of which nothing is left are gone."""
        rows, spans = {}, {}
        for lane, span in self.spans.items():
            start = max(span.start, vector.get(lane, span.start))
            if start < span.end:
                spans[lane] = Span(start, span.end)
                rows[lane] = [row for row in self.rows[lane] if row.offset >= start]
        return Batch(rows, spans, self.reason)

    def beside(self, spans: Mapping[Lane, Span]) -> Batch[R]:
        """The same with spans without rows, of lanes that it does not have."""
        return Batch({**self.rows, **dict.fromkeys(spans, ())}, {**self.spans, **spans}, self.reason)

    def without(self, lanes: Iterable[Lane]) -> Batch[R]:
        """The same without these lanes."""
        gone = set(lanes)
        return Batch(
            {lane: rows for lane, rows in self.rows.items() if lane not in gone},
            {lane: span for lane, span in self.spans.items() if lane not in gone},
            self.reason,
        )


@dataclass(slots=True)
class _Lane(Generic[R]):
    start: int
    end: int
    rows: list[R] = field(default_factory=list)


class Filling(Generic[R]):
    """The batch that is being gathered."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, _Lane[R]] = {}
        self.rows, self.bytes = 0, 0
        self._since: float | None = None

    def __repr__(self) -> str:
        return f"<Filling {self.rows} rows, {self.bytes} bytes, {len(self._lanes)} lanes>"

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._lanes

    def add(self, lane: Lane, start: int, rows: Sequence[R], now: float) -> None:
        """Rows of a lane in offset order. `start`: where its span begins, if it has none yet.

        Raises ValueError for rows that do not lie behind those before.
        """
        held = self._lanes.get(lane)
        if held is None:
            held = self._lanes[lane] = _Lane(start, start)
        if not rows:
            return
        if rows[0].offset < held.end:
            raise ValueError(f"{lane}: #{rows[0].offset} comes behind #{held.end - 1}")
        held.rows += rows
        held.end = rows[-1].offset + 1
        self.rows += len(rows)
        self.bytes += sum(map(_size, rows))
        if self._since is None:
            self._since = now

    def drop(self, lane: Lane) -> None:
        """This lane is another owner's: forget its rows."""
        held = self._lanes.pop(lane, None)
        if held is not None:
            self.rows -= len(held.rows)
            self.bytes -= sum(map(_size, held.rows))
            if not self.rows:
                self._since = None

    def due_at(self, limits: Limits) -> float | None:
        """When its oldest row is too old; None while it holds none."""
        return None if self._since is None else self._since + limits.seconds

    def reason(self, limits: Limits, now: float) -> Reason | None:
        """Why it is to be cut now; None: it is not."""
        if self._since is None:
            return None
        if self.rows >= limits.rows:
            return "rows"
        if self.bytes >= limits.bytes:
            return "bytes"
        return "age" if now >= self._since + limits.seconds else None

    def cut(self, reason: Reason) -> Batch[R]:
        """Everything that was gathered; it is empty then."""
        lanes = {lane: held for lane, held in self._lanes.items() if held.end > held.start}
        batch = Batch(
            {lane: held.rows for lane, held in lanes.items()},
            {lane: Span(held.start, held.end) for lane, held in lanes.items()},
            reason,
        )
        self._lanes, self.rows, self.bytes, self._since = {}, 0, 0, None
        return batch
