"""Bad rows on their way: counted, and put where they belong before or behind the batch that they came with."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence, Set
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from rocketapp import Message, MessageQueue, RocketAppError
from rocketapp.plugin import RESERVED_PROPERTIES
from rocketapp_lake.batches import BadRow, Batch, Place
from rocketapp_lake.committer import behind, until_there
from rocketapp_lake.errors import TooManyBadRowsError
from rocketapp_lake.records import Commit, Head
from rocketapp_lake.rows import Rows, bad_table
from rocketapp_lake.store import Store

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("rocketapp.lake")

EARLIER = "the app could not decode it when it came first"
"""Why a message is bad that an earlier version of the app has called so, and this one would not."""
LEAST_ROWS = 1_000
"""Rows of a queue below which no share of bad ones stops it."""
AT_ONCE = 64
"""Bad rows that are published at a time."""
LONGEST_PROBLEM = 1_000
"""Characters of a reason in a message."""
MOST_PROPERTIES = 28_000
"""Bytes of a message's properties above which its copy goes without them: the reason and the place need room."""


Put = Callable[[Batch, Sequence[BadRow]], None]
"""Puts bad rows in their place before their batch is committed, and returns when they are there for certain. Called in
the thread of the sink; again with the batch, or a part of it, after a failure."""


class Guard:
    """Lets bad rows through to their place, unless a queue has too many of them.

    Then it stops: what floods in is a fault of the sink's type, or of a producer.
    """

    def __init__(self, most: float, put: Put | None = None) -> None:
        """`most`: the share of bad rows that is borne, 0 to 1."""
        self._most, self._put = most, put
        self._seen: dict[MessageQueue, deque[tuple[int, int]]] = {}
        """Rows and bad rows of the newest batches that are in the table."""

    def put(self, batch: Batch, bad: Sequence[BadRow]) -> None:
        """Raises TooManyBadRowsError with each queue of the batch whose last LEAST_ROWS rows, or more, are too bad."""
        stopped = {}
        for queue, *own in _counted(batch, bad):
            rows, count = map(sum, zip(own, *self._seen.get(queue, ()), strict=True))
            if rows >= LEAST_ROWS and count > self._most * rows:
                first = next((one for one in bad if one.queue == queue), None)
                stopped[queue] = self._said(queue, batch, rows, count, first)
        if stopped:
            raise TooManyBadRowsError(stopped)
        if self._put is not None:
            self._put(batch, bad)

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


class BadTable:
    """A table of their own that follows the other one: what that one's commits pass over comes into it, once.

    So a single commit decides what is bad, whatever another owner thinks of it. Who dies before they are here leaves
    them to the next owner, which reads their messages again. Positions here tell what has come.
    """

    def __init__(self, new_store: Callable[[], Store], sink: str, rows: Rows, now: Callable[[], float]) -> None:
        self._new_store, self.sink, self._rows, self._now = new_store, sink, rows, now

    @cached_property
    def store(self) -> Store:
        """Made at its first use: a sink without bad rows has no table for them."""
        return self._new_store()

    def owed(self, queue: MessageQueue, head: Head) -> list[int]:
        """What has not come yet of a queue. `head`: where the other table stands."""
        if queue not in head.aside:
            return []
        begin = self.store.load().vector.get(queue, 0)
        return [offset for offset in head.aside[queue] if offset >= begin]

    def follow(self, batch: Batch, head: Head, bad: Sequence[BadRow]) -> None:
        """Take what has not come yet of a batch that is in the other table. `bad`: of the last commit, with reasons.

        `batch`: as it was gathered, for an owner before may have committed a part of it.
        """
        ends = {queue: min(span.end, head.vector.get(queue, 0)) for queue, span in batch.spans.items()}
        owed = [
            (queue, offset)
            for queue, end in ends.items()
            for offset in head.aside.get(queue, ())
            if batch.spans[queue].start <= offset < end
        ]

        def rest(own: Head) -> tuple[Commit, pa.Table | None] | None:
            left = {(queue, offset) for queue, offset in owed if offset >= own.vector.get(queue, 0)}
            if not left:
                return None
            rows = self._found(left, batch, bad)
            commit = behind(own, self.sink, {**own.vector, **{queue: ends[queue] for queue, _ in left}}, self._now())
            return replace(commit, rows=len(rows)), bad_table(rows) if rows else None

        if owed:
            until_there(self.store, self.sink, rest)

    def _found(self, left: Set[Place], batch: Batch, bad: Sequence[BadRow]) -> list[BadRow]:
        found = [one for one in bad if one.place in left]
        if len(found) < len(left):
            again = self._rows.bad(replace(batch, refused=dict.fromkeys(left, EARLIER)))
            found = [one for one in again if one.place in left]
        if len(found) < len(left):
            log.error("sink %s: %d bad rows are lost: their messages have expired", self.sink, len(left) - len(found))
        return found


class BadTopic:
    """A topic of their own: each bad row is there at least once, and says where it comes from."""

    def __init__(self, publish: Publish, topic: str, cluster: str | None, sink: str) -> None:
        """Needs a running loop."""
        self._publish, self._topic, self._cluster, self._sink = publish, topic, cluster, sink
        self._loop = asyncio.get_running_loop()
        self._stored: set[Place] = set()
        """Of the batch that is on its way: it is not sent again when the table fails."""

    def put(self, batch: Batch, bad: Sequence[BadRow]) -> None:
        self._stored &= {one.place for one in bad}
        if bad:
            asyncio.run_coroutine_threadsafe(self._send_all(bad), self._loop).result()

    async def _send_all(self, bad: Sequence[BadRow]) -> None:
        left = [one for one in bad if one.place not in self._stored]
        for start in range(0, len(left), AT_ONCE):
            some = left[start : start + AT_ONCE]
            answers = await asyncio.gather(*map(self._send, some), return_exceptions=True)
            sent = zip(some, answers, strict=True)
            self._stored |= {one.place for one, answer in sent if not isinstance(answer, BaseException)}
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer

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
