"""Messages are gathered until a batch is cut. Values alone: the time is an argument.

They come in pieces, as pulls brought them, of which each holds one message or several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Literal, NamedTuple

from rocketapp import Message, MessageQueue
from rocketapp.plugin import StoredRecords
from rocketapp_lake.positions import Marks, Span, Vector

if TYPE_CHECKING:
    import pyarrow as pa

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
class Batch:
    """Messages that go into the table together."""

    pieces: Mapping[MessageQueue, Sequence[StoredRecords]]
    """In offset order. A queue may have none: its span is an answer without rows."""
    spans: Mapping[MessageQueue, Span]
    reason: Reason = "rows"
    marks: Marks = field(default_factory=dict)
    """The last record of each queue, as far as it is known."""
    refused: Mapping[tuple[MessageQueue, int], str] = field(default_factory=dict)
    """Messages, by queue and offset, whose rows the table has refused, and why: they are bad rows."""

    def __len__(self) -> int:
        return sum(map(self.count, self.pieces))

    def count(self, queue: MessageQueue) -> int:
        """How many messages it has of this queue."""
        return sum(map(len, self.pieces[queue]))

    def trimmed(self, vector: Vector) -> Batch:
        """Without what lies below the vector. Queues of which nothing is left are gone."""
        pieces, spans = {}, {}
        for queue, span in self.spans.items():
            start = max(span.start, vector.get(queue, span.start))
            if start < span.end:
                spans[queue] = Span(start, span.end)
                pieces[queue] = [left for piece in self.pieces[queue] if (left := piece.since(start)) is not None]
        marks = {queue: mark for queue, mark in self.marks.items() if queue in spans}
        return replace(self, pieces=pieces, spans=spans, marks=marks)

    def beside(self, spans: Mapping[MessageQueue, Span]) -> Batch:
        """The same with spans without rows, of queues that it does not have."""
        return replace(self, pieces={**self.pieces, **dict.fromkeys(spans, ())}, spans={**self.spans, **spans})

    def without(self, queues: Iterable[MessageQueue]) -> Batch:
        """The same without these queues."""
        return self.trimmed({queue: self.spans[queue].end for queue in queues if queue in self.spans})


Place = tuple[MessageQueue, int]
"""The queue and the offset of a message, by which it is told from all others."""


class BadRow(NamedTuple):
    """A message that cannot be a row."""

    queue: MessageQueue
    message: Message
    problem: str

    @property
    def place(self) -> Place:
        return self.queue, self.message.offset


class Made(NamedTuple):
    """What was made of the messages of a batch."""

    table: pa.Table | None
    """Their rows; None, or one without rows, when none is to be stored."""
    bad: Sequence[BadRow] = ()
    """Those that cannot be rows, in offset order by queue."""


@dataclass(slots=True)
class _Held:
    start: int
    end: int
    pieces: list[StoredRecords] = field(default_factory=list)


class Filling:
    """The batch that is being gathered."""

    def __init__(self) -> None:
        self._queues: dict[MessageQueue, _Held] = {}
        self.rows, self.bytes = 0, 0
        self._since: float | None = None

    def __repr__(self) -> str:
        return f"<Filling {self.rows} rows, {self.bytes} bytes, {len(self._queues)} queues>"

    def __contains__(self, queue: MessageQueue) -> bool:
        return queue in self._queues

    def add(self, queue: MessageQueue, start: int, pieces: Sequence[StoredRecords], now: float) -> None:
        """Pieces of a queue in offset order. `start`: where its span begins, if it has none yet.

        Raises ValueError for pieces that do not lie behind those before.
        """
        held = self._queues.get(queue)
        if held is None:
            held = self._queues[queue] = _Held(start, start)
        if not pieces:
            return
        if pieces[0].offset < held.end:
            raise ValueError(f"{queue}: #{pieces[0].offset} comes behind #{held.end - 1}")
        held.pieces += pieces
        held.end = pieces[-1].end
        self.rows += sum(map(len, pieces))
        self.bytes += sum(map(_size, pieces))
        if self._since is None:
            self._since = now

    def drop(self, queue: MessageQueue) -> None:
        """This queue is another owner's: forget its rows."""
        held = self._queues.pop(queue, None)
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

    def cut(self, reason: Reason) -> Batch:
        """Everything that was gathered; it is empty then."""
        queues = {queue: held for queue, held in self._queues.items() if held.end > held.start}
        batch = Batch(
            {queue: held.pieces for queue, held in queues.items()},
            {queue: Span(held.start, held.end) for queue, held in queues.items()},
            reason,
        )
        self._queues, self.rows, self.bytes, self._since = {}, 0, 0, None
        return batch


class Buffer:
    """Bytes that a sink holds: gathered, or on their way into the table. They say when its pulls have to wait."""

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
