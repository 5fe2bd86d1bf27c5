"""Finding a single message: by its place in the log, or by the time it was stored."""

from __future__ import annotations

from collections.abc import Mapping

from rocketapp.broker.store.commit_log import CommitLog
from rocketapp.broker.store.consume_queue import ConsumeQueue
from rocketapp.broker.store.stored import HEAD_BYTES, announced_size, parse, stored_ms_of


def record_at(log: CommitLog, queues: Mapping[tuple[str, int], ConsumeQueue], physical: int) -> bytes | None:
    """The record that begins there, if its queue agrees: a body may hold bytes that look like a record."""
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
    """When the record that begins there was stored; None if it is damaged."""
    head = log.read(physical, HEAD_BYTES)
    return stored_ms_of(head) if announced_size(head, 0, physical) else None


def offset_by_time(log: CommitLog, queue: ConsumeQueue | None, timestamp_ms: int, boundary: str) -> int:
    """`lower`: the first offset stored then or later; `upper`: the last one stored then or before.

    Store times never go back within a log, so halving finds it. Damaged records count as
    stored before: the answer is then off by those, never by more.
    """
    if queue is None:
        return 0
    low, high = queue.min_offset, queue.max_offset
    # For the upper boundary: the first offset stored later, and then one back.
    limit = timestamp_ms if boundary == "lower" else timestamp_ms + 1
    while low < high:
        middle = (low + high) // 2
        stored_ms = stored_ms_at(log, queue.entry(middle)[0])
        if stored_ms is None or stored_ms < limit:
            low = middle + 1
        else:
            high = middle
    if boundary == "lower":
        return low
    return low - 1 if low > queue.min_offset else 0
