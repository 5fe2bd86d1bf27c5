"""Bad rows on their way: counted, and put where they belong before the batch that they came with is published."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from rocketapp import Message, MessageQueue, RocketAppError
from rocketapp.plugin import RESERVED_PROPERTIES
from rocketapp_lake.batches import Batch
from rocketapp_lake.committer import Attempt
from rocketapp_lake.errors import TooManyBadRowsError
from rocketapp_lake.rows import BadRow, Rows, bad_table
from rocketapp_lake.store import SetsAside, Store
from rocketapp_lake.worker import Worker

if TYPE_CHECKING:
    import pyarrow as pa

LEAST_ROWS = 1_000
"""Rows of a queue below which no share of bad ones stops it."""
AT_ONCE = 64
"""Bad rows that are published at a time."""
LONGEST_PROBLEM = 1_000
"""Characters of a reason in a message."""
MOST_PROPERTIES = 28_000
"""Bytes of a message's properties above which its copy goes without them: the reason and the place need room."""


class Guard:
    """Stops a queue of which too much is bad: what floods in is a fault of the sink's type, or of a producer."""

    def __init__(self, most: float) -> None:
        """`most`: the share of bad rows that is borne, 0 to 1."""
        self._most = most
        self._seen: dict[MessageQueue, deque[tuple[int, int]]] = {}
        """Rows and bad rows of the newest batches that are in the table."""

    def check(self, batch: Batch, bad: Sequence[BadRow]) -> None:
        """Raises TooManyBadRowsError with each queue of the batch whose last LEAST_ROWS rows, or more, are too bad."""
        stopped = {}
        for queue, *own in _counted(batch, bad):
            rows, count = map(sum, zip(own, *self._seen.get(queue, ()), strict=True))
            if rows >= LEAST_ROWS and count > self._most * rows:
                first = next((one for one in bad if one.queue == queue), None)
                stopped[queue] = self._said(queue, batch, rows, count, first)
        if stopped:
            raise TooManyBadRowsError(stopped)

    def published(self, batch: Batch, bad: Sequence[BadRow]) -> None:
        """The batch is in the table."""
        for queue, rows, count in _counted(batch, bad):
            seen = self._seen.setdefault(queue, deque())
            seen.append((rows, count))
            while sum(before for before, _ in seen) - seen[0][0] >= LEAST_ROWS:
                seen.popleft()

    def _said(self, queue: MessageQueue, batch: Batch, rows: int, count: int, first: BadRow | None) -> str:
        what = "" if first is None else f"; #{first.message.offset}: {first.problem}"
        return (
            f"{queue} stops at #{batch.spans[queue].start}: {count} of its last {rows} rows are bad, more than "
            f"bad_rows_max_ratio={self._most:g}{what}; mend the type or the producer and start the app again"
        )


Publish = Callable[..., Awaitable[Any]]
"""`Surface.publish`."""


class Outlet(Protocol):
    """Where bad rows go."""

    async def put(self, batch: Batch, bad: Sequence[BadRow]) -> None:
        """Returns when they are there for certain. Called again with the batch, or a part of it, after a failure."""
        ...

    def forget(self) -> None:
        """The batch is in the table, or given up."""
        ...


class BadTable:
    """A table of their own, with positions of its own: a bad row is in it once."""

    def __init__(self, store: Store, sink: str, worker: Worker, now: Callable[[], float]) -> None:
        self._store, self._sink, self._worker, self._now = store, sink, worker, now

    async def put(self, batch: Batch, bad: Sequence[BadRow]) -> None:
        def to_table(part: Batch) -> pa.Table | None:
            held = [one for one in bad if one.queue in part.spans and one.message.offset >= part.spans[one.queue].start]
            return bad_table(held) if held else None

        attempt = Attempt(self._store, self._sink, batch, to_table=to_table, now=self._now, is_sparse=True)
        await self._worker.run(attempt.run)

    def forget(self) -> None:
        """The table knows where it stands."""


class BadBeside:
    """A table of their own, in the commit of the other rows: a bad row is in it once, whatever the database refuses."""

    def __init__(self, store: SetsAside) -> None:
        self._store = store

    async def put(self, batch: Batch, bad: Sequence[BadRow]) -> None:
        self._store.set_aside(bad_table(bad))

    def forget(self) -> None:
        self._store.set_aside(None)


class BadTopic:
    """A topic of their own: each bad row is there at least once, and says where it comes from."""

    def __init__(self, publish: Publish, topic: str, cluster: str | None, sink: str) -> None:
        self._publish, self._topic, self._cluster, self._sink = publish, topic, cluster, sink
        self._stored: set[tuple[MessageQueue, int]] = set()
        """Of the batch that is on its way: it is not sent again when the table fails."""

    async def put(self, batch: Batch, bad: Sequence[BadRow]) -> None:
        left = [one for one in bad if (one.queue, one.message.offset) not in self._stored]
        for start in range(0, len(left), AT_ONCE):
            some = left[start : start + AT_ONCE]
            answers = await asyncio.gather(*map(self._send, some), return_exceptions=True)
            self._stored |= {
                (one.queue, one.message.offset)
                for one, answer in zip(some, answers, strict=True)
                if not isinstance(answer, BaseException)
            }
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer

    def forget(self) -> None:
        self._stored.clear()

    async def _send(self, row: BadRow) -> None:
        message = row.message
        await self._publish(
            self._topic,
            _stored_body(message),
            tag=_tag(message),
            keys=message.keys,
            properties=bad_properties(row, self._sink),
            cluster=self._cluster,
        )


class Aside:
    """What becomes of the bad rows of one sink."""

    def __init__(self, rows: Rows, guard: Guard, outlet: Outlet) -> None:
        self._rows, self._guard, self._outlet = rows, guard, outlet
        self._last: tuple[Batch, Sequence[BadRow]] | None = None

    @property
    def has_rows(self) -> bool:
        """Whether the batch whose rows were made last has bad ones."""
        return bool(self._rows.aside)

    async def put(self, batch: Batch) -> None:
        """To be awaited between making the rows of the batch and publishing it.

        So a row that the table has passed over is in its place. Raises TooManyBadRowsError, before anything is put
        anywhere, and what the outlet raises.
        """
        bad = [one for one in self._rows.aside if one.queue in batch.spans]
        self._guard.check(batch, bad)
        self._last = batch, bad
        if bad:
            await self._outlet.put(batch, bad)

    def published(self) -> None:
        """The batch is in the table."""
        if self._last is not None:
            self._guard.published(*self._last)

    def forget(self) -> None:
        """The batch is in the table, or given up."""
        self._last, self._rows.aside = None, ()
        self._outlet.forget()


def bad_properties(row: BadRow, sink: str) -> dict[str, str]:
    """The message's own properties, where it comes from, and why it is bad."""
    message, queue = row.message, row.queue
    own = dict(message.properties) if len(message.raw_properties) <= MOST_PROPERTIES else {}
    problem = "".join(sign if sign.isprintable() else " " for sign in row.problem[:LONGEST_PROBLEM])
    return {
        **{name: value for name, value in own.items() if name not in RESERVED_PROPERTIES},
        "rocketapp.sink": sink,
        "rocketapp.reason": problem or "unknown",
        "rocketapp.topic": queue.topic,
        "rocketapp.broker": queue.broker_name,
        "rocketapp.queue": str(queue.queue_id),
        "rocketapp.offset": str(message.offset),
        "rocketapp.stored_ms": str(message.stored_ms),
    }


def _stored_body(message: Message) -> bytes:
    """The body as the producer sent it; as it is stored, where it cannot be inflated; a blank instead of none."""
    try:
        return message.body or b" "
    except RocketAppError:
        pass
    try:
        return message.stored_body or b" "
    except RocketAppError:
        return b" "


def _tag(message: Message) -> str | None:
    """The tag, unless no subscription could select it: such a one cannot be published."""
    tag = message.tag
    return tag if tag and "||" not in tag and tag == tag.strip() else None


def _counted(batch: Batch, bad: Sequence[BadRow]) -> list[tuple[MessageQueue, int, int]]:
    """Rows and bad rows by queue."""
    of_queue = Counter(one.queue for one in bad)
    return [(queue, batch.count(queue), of_queue[queue]) for queue, held in batch.pieces.items() if held]
