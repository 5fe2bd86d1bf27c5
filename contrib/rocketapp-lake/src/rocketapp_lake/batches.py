"""Messages are gathered until a batch is cut. Values alone: the time is an argument.

They come in pieces, as pulls brought them, of which each holds one message or several.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Generic, Literal, Protocol, Self, TypeVar

from rocketapp_lake.lanes import Lane, Marks, Span, Vector


class Piece(Protocol):
    """What messages that came together have that matters here: see rocketapp.plugin.StoredRecords."""

    @property
    def offset(self) -> int: ...

    @property
    def end(self) -> int: ...

    @property
    def size(self) -> int: ...

    def __len__(self) -> int: ...

    def since(self, offset: int) -> Self | None: ...


P = TypeVar("P", bound=Piece)
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
class Batch(Generic[P]):
    """Messages that go into the table together."""

    pieces: Mapping[Lane, Sequence[P]]
    """In offset order. A lane may have none: its span is an answer without rows."""
    spans: Mapping[Lane, Span]
    reason: Reason = "rows"
    marks: Marks = field(default_factory=dict)
    """The last record of each lane, as far as it is known."""
    refused: Mapping[tuple[Lane, int], str] = field(default_factory=dict)
    """Messages, by lane and offset, whose rows the table has refused, and why: they are bad rows."""

    def __len__(self) -> int:
        return sum(map(self.count, self.pieces))

    def count(self, lane: Lane) -> int:
        """How many messages it has of this lane."""
        return sum(map(len, self.pieces[lane]))

    @property
    def size(self) -> int:
        return sum(piece.size for held in self.pieces.values() for piece in held)

    def trimmed(self, vector: Vector) -> Batch[P]:
        """Without what lies below the vector. Lanes of which nothing is left are gone."""
        pieces, spans = {}, {}
        for lane, span in self.spans.items():
            start = max(span.start, vector.get(lane, span.start))
            if start < span.end:
                spans[lane] = Span(start, span.end)
                pieces[lane] = [left for piece in self.pieces[lane] if (left := piece.since(start)) is not None]
        marks = {lane: mark for lane, mark in self.marks.items() if lane in spans}
        return replace(self, pieces=pieces, spans=spans, marks=marks)

    def beside(self, spans: Mapping[Lane, Span]) -> Batch[P]:
        """The same with spans without rows, of lanes that it does not have."""
        return replace(self, pieces={**self.pieces, **dict.fromkeys(spans, ())}, spans={**self.spans, **spans})

    def without(self, lanes: Iterable[Lane]) -> Batch[P]:
        """The same without these lanes."""
        gone = set(lanes)
        return replace(
            self,
            pieces={lane: held for lane, held in self.pieces.items() if lane not in gone},
            spans={lane: span for lane, span in self.spans.items() if lane not in gone},
            marks={lane: mark for lane, mark in self.marks.items() if lane not in gone},
        )


@dataclass(slots=True)
class _Lane(Generic[P]):
    start: int
    end: int
    pieces: list[P] = field(default_factory=list)


class Filling(Generic[P]):
    """The batch that is being gathered."""

    def __init__(self) -> None:
        self._lanes: dict[Lane, _Lane[P]] = {}
        self.rows, self.bytes = 0, 0
        self._since: float | None = None

    def __repr__(self) -> str:
        return f"<Filling {self.rows} rows, {self.bytes} bytes, {len(self._lanes)} lanes>"

    def __contains__(self, lane: Lane) -> bool:
        return lane in self._lanes

    def add(self, lane: Lane, start: int, pieces: Sequence[P], now: float) -> None:
        """Pieces of a lane in offset order. `start`: where its span begins, if it has none yet.

        Raises ValueError for pieces that do not lie behind those before.
        """
        held = self._lanes.get(lane)
        if held is None:
            held = self._lanes[lane] = _Lane(start, start)
        if not pieces:
            return
        if pieces[0].offset < held.end:
            raise ValueError(f"{lane}: #{pieces[0].offset} comes behind #{held.end - 1}")
        held.pieces += pieces
        held.end = pieces[-1].end
        self.rows += sum(map(len, pieces))
        self.bytes += sum(map(_size, pieces))
        if self._since is None:
            self._since = now

    def drop(self, lane: Lane) -> None:
        """This lane is another owner's: forget its rows."""
        held = self._lanes.pop(lane, None)
        if held is not None:
            self.rows -= sum(map(len, held.pieces))
            self.bytes -= sum(map(_size, held.pieces))
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

    def cut(self, reason: Reason) -> Batch[P]:
        """Everything that was gathered; it is empty then."""
        lanes = {lane: held for lane, held in self._lanes.items() if held.end > held.start}
        batch = Batch(
            {lane: held.pieces for lane, held in lanes.items()},
            {lane: Span(held.start, held.end) for lane, held in lanes.items()},
            reason,
        )
        self._lanes, self.rows, self.bytes, self._since = {}, 0, 0, None
        return batch
