"""Finds a single message by its position in the log, or by its store time; and an offset by a position."""

from __future__ import annotations

from collections.abc import Mapping

from rocketapp.broker.store.commit_log import CommitLog
from rocketapp.broker.store.consume_queue import ConsumeQueue
from rocketapp.broker.store.stored import HEAD_BYTES, announced_size, parse, stored_ms_of


def record_at(log: CommitLog, queues: Mapping[tuple[str, int], ConsumeQueue], physical: int) -> bytes | None:
    """The record at this position, if its consume queue points to it. Bytes in a body may look like a record."""
    size = announced_size(log.read(physical, HEAD_BYTES), 0, physical)
    if not size or size > log.end - physical:
        return None
    data = log.read(physical, size)
    stored = parse(data, 0, physical)
    if stored is None:
        return None
    queue = queues.get((stored.topic, stored.queue_id))
    if queue is None or not queue.min_offset <= stored.queue_offset < queue.max_offset:
        return None
    return data if queue.entry(stored.queue_offset)[0] == physical else None


def stored_ms_at(log: CommitLog, physical: int) -> int | None:
    """The store time of the record at this position; None if it is damaged."""
    head = log.read(physical, HEAD_BYTES)
    return stored_ms_of(head) if announced_size(head, 0, physical) else None


def offset_by_time(log: CommitLog, queue: ConsumeQueue | None, timestamp_ms: int, boundary: str) -> int:
    """`lower`: the first offset stored at that time or later; `upper`: the last one stored at that time or before.

    Store times never decrease within a log, so a binary search finds it. Damaged records count as
    stored before, so the answer is wrong by at most their number.
    """
    if queue is None:
        return 0
    # The upper boundary is the offset before the first one that was stored later.
    limit = timestamp_ms if boundary == "lower" else timestamp_ms + 1

    def is_later(offset: int) -> bool:
        stored_ms = stored_ms_at(log, queue.entry(offset)[0])
        return stored_ms is not None and stored_ms >= limit

    low = queue.first_where(is_later, queue.min_offset, queue.max_offset)
    if boundary == "lower":
        return low
    return low - 1 if low > queue.min_offset else 0


def offset_before(queue: ConsumeQueue, offset: int, position: float) -> int:
    """This offset, or the end of the queue where it is beyond that: of what lies before a position of the log."""
    high = min(offset, queue.max_offset)
    if queue.last_physical < position or high <= queue.min_offset or queue.entry(high - 1)[0] < position:
        return high
    return queue.first_where(lambda offset: queue.entry(offset)[0] >= position, queue.min_offset, high)
