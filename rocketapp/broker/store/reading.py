"""Reads for pulls: the matching entries of a queue, and their records from the log.

Rule: the answers are those of Apache RocketMQ's message store, and a damaged record costs its
reader that one message only. Records that are close together are read with one call, because
every pulled message pays for this code.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from rocketapp.broker.store.commit_log import CommitLog
from rocketapp.broker.store.consume_queue import ENTRY, HOLE_SIZE, ConsumeQueue
from rocketapp.broker.store.stored import HEAD_BYTES, announced_size, sound_among

MOST_MESSAGES, MOST_BYTES = 32, 262_144
"""Limits of one read (Java: maxTransferCountOnMessageInMemory, maxTransferBytesOnMessageInMemory)."""
LEAST_SCANNED = 800
"""Entries that one read with a filter may scan at least (Java: maxFilterMessageSize / 20)."""
MOST_SCANNED = 8192
"""Most entries that one read scans. Other requests wait meanwhile, and the reader asks again."""

_LARGE_BYTES = 1 << 20
"""Larger records are read alone, after their head was checked, because a damaged entry may state any size."""
_GAP_BYTES = 16_384
"""Most bytes of other queues' records that are read in between: copying them costs less than another call."""

Matches = Callable[[int], bool]
"""Whether a message with this tags code may match."""


class ReadStatus(StrEnum):
    """How a read ended; the values are the remarks of Apache's responses."""

    FOUND = "FOUND"
    NO_MATCHED_MESSAGE = "NO_MATCHED_MESSAGE"
    MESSAGE_WAS_REMOVING = "MESSAGE_WAS_REMOVING"
    OFFSET_OVERFLOW_BADLY = "OFFSET_OVERFLOW_BADLY"
    OFFSET_OVERFLOW_ONE = "OFFSET_OVERFLOW_ONE"
    OFFSET_TOO_SMALL = "OFFSET_TOO_SMALL"
    NO_MATCHED_LOGIC_QUEUE = "NO_MATCHED_LOGIC_QUEUE"
    NO_MESSAGE_IN_QUEUE = "NO_MESSAGE_IN_QUEUE"


class ReadResult(NamedTuple):
    """Concatenated records in `body`, and the offset of the next read."""

    status: ReadStatus
    body: bytes
    count: int  # type: ignore[assignment]  # the number of messages; it hides tuple.count
    next_offset: int
    min_offset: int
    max_offset: int


_Wanted = list[tuple[int, int, int]]
"""Offset, physical offset and size of messages, in this order."""


def read_queue(
    log: CommitLog,
    queue: ConsumeQueue | None,
    offset: int,
    limits: tuple[int, int],
    *,
    matches: Matches | None,
    damaged: list[tuple[int, int]],
    trusts: bool,
) -> ReadResult:
    """Messages of a queue from `offset` on, up to `limits` (messages, bytes). The first one may be larger.

    What log and queue do not agree about is left out; its offset and physical offset are added to `damaged`.
    `trusts`: no body is checked of what the log trusts.
    """
    max_messages, max_bytes = limits
    if queue is None:
        return ReadResult(ReadStatus.NO_MATCHED_LOGIC_QUEUE, b"", 0, 0, 0, 0)
    first, end = queue.min_offset, queue.max_offset
    if not first <= offset < end:
        status, next_offset = _outside(offset, first, end)
        return ReadResult(status, b"", 0, next_offset, first, end)
    most = min(max_messages, MOST_MESSAGES)
    scan = most if matches is None else min(max(LEAST_SCANNED, max_messages), MOST_SCANNED)
    entries = queue.entries(offset, max(1, min(scan, end - offset)))
    limits = most, min(max_bytes, MOST_BYTES)
    wanted, next_offset, removed = _select(entries, offset, limits, matches, log.min_position)
    body, count = _fetch(log, queue, wanted, damaged, trusts=trusts) if wanted else (b"", 0)
    if count:
        return ReadResult(ReadStatus.FOUND, body, count, next_offset, first, end)
    all_removed = removed == next_offset - offset
    status = ReadStatus.MESSAGE_WAS_REMOVING if all_removed else ReadStatus.NO_MATCHED_MESSAGE
    return ReadResult(status, b"", 0, next_offset, first, end)


def _outside(offset: int, first: int, end: int) -> tuple[ReadStatus, int]:
    if end == 0:
        return ReadStatus.NO_MESSAGE_IN_QUEUE, 0
    if offset < first:
        return ReadStatus.OFFSET_TOO_SMALL, first
    if offset == end:
        return ReadStatus.OFFSET_OVERFLOW_ONE, offset
    return ReadStatus.OFFSET_OVERFLOW_BADLY, end


def _select(
    entries: bytes, offset: int, limits: tuple[int, int], matches: Matches | None, log_min: int
) -> tuple[_Wanted, int, int]:
    """The entries to read, the offset after the last scanned one, and how many were holes or deleted."""
    most, most_bytes = limits
    wanted: _Wanted = []
    total = removed = 0
    for physical, size, tags_code in ENTRY.iter_unpack(entries):
        if wanted and (len(wanted) >= most or total + size > most_bytes):
            break
        if size == HOLE_SIZE or (0 <= physical < log_min and size > 0):
            removed += 1
        elif matches is None or matches(tags_code) or size <= 0:
            wanted.append((offset, physical, size))
            total += size
        offset += 1
    return wanted, offset, removed


def _fetch(
    log: CommitLog, queue: ConsumeQueue, wanted: _Wanted, damaged: list[tuple[int, int]], *, trusts: bool
) -> tuple[bytes, int]:
    """The wanted records that are undamaged, and their number."""
    parts: list[bytes] = []
    count = begin = 0
    while begin < len(wanted):
        stop, size, is_dense = _run(log, wanted, begin)
        start = wanted[begin][1]
        data = log.read(start, size) if size else b""
        run = wanted[begin:stop]
        checks_body = not trusts or start < log.trusted_from  # after the read, which may have found a bad sector
        sound = sound_among(data, start, run, queue.queue_id, queue.topic_bytes, checks_body=checks_body)
        if len(sound) != len(run):
            damaged += [(offset, physical) for offset, physical, _ in sorted(set(run).difference(sound))]
            is_dense = False
        if is_dense:
            parts.append(data)
        else:
            parts += [data[physical - start : physical - start + size] for _, physical, size in sound]
        count += len(sound)
        begin = stop
    return parts[0] if len(parts) == 1 else b"".join(parts), count


def _run(log: CommitLog, wanted: _Wanted, begin: int) -> tuple[int, int, bool]:
    """For records that one call reads: the end of the run, its bytes, and whether the records are adjacent."""
    _, start, size = wanted[begin]
    end = start + size
    limit = min(log.segment_end(start), log.end)
    if not 0 < size <= limit - start:
        return begin + 1, 0, False  # a damaged entry
    if size > _LARGE_BYTES and announced_size(log.read(start, HEAD_BYTES), 0, start) != size:
        return begin + 1, 0, False
    is_dense = True
    for index in range(begin + 1, len(wanted)):
        _, physical, size = wanted[index]
        if physical != end:
            if not end < physical <= end + _GAP_BYTES:
                return index, end - start, is_dense
            is_dense = False
        if not 0 < size <= _LARGE_BYTES or physical + size > limit:
            return index, end - start, is_dense
        end = physical + size
    return len(wanted), end - start, is_dense
