"""Finds the end of a log at a start, and lets its consume queues follow until there.

The log is read from the position of the queues. Where the log was synced, a bad record is damage: it costs itself and
is skipped. After a crash of ours the first incomplete record behind that ends the log, and the rest is put aside: a
prefix survives. Everything before the last segments was synced, and after a clean stop, or where another broker wrote,
whatever is followed by a readable record.

Rule: recovery may be killed at any moment and begun again. It decides from the log alone.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from rocketapp.broker.store.checkpoint import Checkpoint
from rocketapp.broker.store.commit_log import CommitLog
from rocketapp.broker.store.consume_queues import ConsumeQueues, stored_at
from rocketapp.broker.store.stored import HEAD_BYTES, Stored, announced_size, blank_at, candidates, is_empty, parse
from rocketapp.model.event import LogCut, LoopFailed, Observe, RecordDamaged, StoreRecovered, unobserved

_CHUNK_BYTES = 1 << 20


def recover(
    log: CommitLog, queues: ConsumeQueues, checkpoint: Checkpoint, *, is_clean: bool, observe: Observe
) -> Stored | None:
    """Bring log and queues to the newest consistent state; return the last record.

    `is_clean`: the last broker has stopped by itself.
    """
    flushed = checkpoint.flushed
    synced = _synced(log, flushed, has_unsynced_segment=flushed is not None and not is_clean)
    scan = Scan(log, synced, observe, ends_at_damage=flushed is not None and not is_clean, limit=log.files_end)
    place = queues.open(log, checkpoint, is_clean=is_clean)
    last = stored_at(log, place.last_record)
    records = 0
    for records, last in enumerate(scan.records(place.position), 1):  # noqa: B007 - read behind the loop
        queues.follow((last,))
    queues.finish()
    _begin(log, scan, synced=scan.end if is_clean else synced, is_ours=flushed is not None, observe=observe)
    observe(StoreRecovered(scan.end - place.position, records, place.is_anew and records > 0))
    return last


def _synced(log: CommitLog, flushed: int | None, *, has_unsynced_segment: bool) -> int:
    """Up to where the log was certainly synced: the flushed position, and all but the last segments."""
    start = log.files_end
    while start > log.min_position:
        start = log.segment_start(start - 1)
        if not is_empty(log.read(start, HEAD_BYTES)):
            break
    if has_unsynced_segment and start > log.min_position:
        start = log.segment_start(start - 1)
    return max(start, flushed or 0)


def _begin(log: CommitLog, scan: Scan, *, synced: int, is_ours: bool, observe: Observe) -> None:
    if scan.reason:
        observe(LogCut(scan.end, scan.reason))
    try:
        log.begin(scan.end, synced=synced, keeps_rest=bool(scan.reason), is_ours=is_ours)
    except OSError as error:
        if not scan.reason:
            raise
        # A full disk does not keep a broker from starting: what was cut off is an unfinished write of a crash.
        observe(LoopFailed("cut", f"what lies behind {scan.end} cannot be put aside: {error}"))
        log.begin(scan.end, synced=synced, keeps_rest=False, is_ours=is_ours)


def records_of(log: CommitLog, position: int, limit: int) -> Iterator[Stored]:
    """The records that begin in this part of a log. Damaged ones are left out."""
    return Scan(log, limit, unobserved, ends_at_damage=False, limit=limit).records(position)


class Scan:
    """Reads the records of a log one after the other."""

    def __init__(self, log: CommitLog, synced: int, observe: Observe, *, ends_at_damage: bool, limit: int) -> None:
        """limit: where reading stops at the latest."""
        self._log, self._synced, self._observe, self._limit = log, synced, observe, limit
        self._ends_at_damage = ends_at_damage
        """Whether a bad record behind the synced position is an unfinished write, whatever follows it."""
        self.end: int = 0
        self.reason: str = ""
        """Why the log ends before its last byte; empty when nothing unreadable follows."""

    def records(self, position: int) -> Iterator[Stored]:
        """Every whole record from this position on. Afterwards `end` is the end of the log."""
        while position < self._limit:
            chunk = self._log.read(position, min(_CHUNK_BYTES, self._limit - position))
            at = 0
            while stored := self._whole(chunk, at, position + at):
                yield stored
                at += stored.size
            at = at or (yield from self._step(position))
            if not at:
                break
            position += at
        self.end = position

    def _whole(self, data: bytes, at: int, position: int) -> Stored | None:
        """The record at `at`; None if it is not whole."""
        stored = parse(data, at, position, check_body=position >= self._synced)
        if stored and self._ends_at_damage and position >= self._synced and 0 in stored.raw_properties:
            return None  # no zeros are ever written there, so those bytes did not reach the disk
        return stored

    def _step(self, position: int) -> Generator[Stored, None, int]:
        """Pass what is no whole record of a chunk: return its bytes, 0 at the end of the log.

        What is a record nevertheless, larger or with a damaged body, is yielded.
        """
        log = self._log
        head = log.read(position, HEAD_BYTES)
        if (size := blank_at(head, 0)) and position + size == log.segment_end(position):
            return size
        size = announced_size(head, 0, position)
        stored = self._whole(log.read(position, size), 0, position) if size else None
        if stored is None and position >= self._synced:
            if is_empty(log.read(position, _CHUNK_BYTES)):
                return 0
            if self._ends_at_damage:
                self.reason = "an unfinished write"
                return 0
        if stored := stored or self._damaged(position):
            yield stored
            return stored.size
        following = self._next_record(position + 4)
        if not following and position < self._synced <= self._limit:
            following = self._synced  # lost records were acknowledged, so their place must stay empty
        if not following:
            self.reason = "unreadable, and nothing readable after it"
            return 0
        self._observe(RecordDamaged("", -1, -1, position))
        return following - position

    def _damaged(self, position: int) -> Stored | None:
        """A record with a damaged body only, followed by something readable. It keeps its place in the queue."""
        stored = stored_at(self._log, position)
        end = position + stored.size if stored else position
        behind = self._log.read(end, HEAD_BYTES)
        if stored is None or not (announced_size(behind, 0, end) or blank_at(behind, 0)):
            return None
        self._observe(RecordDamaged(stored.topic, stored.queue_id, stored.queue_offset, position))
        return stored

    def _next_record(self, position: int) -> int:
        """The position of the next whole record; 0 if there is none."""
        log = self._log
        while position < self._limit:
            chunk = log.read(position, _CHUNK_BYTES)
            for at in candidates(chunk):
                start = position + at
                size = announced_size(log.read(start, HEAD_BYTES), 0, start)
                if size and parse(log.read(start, size), 0, start):
                    return start
            position = position + len(chunk) - 8 if len(chunk) == _CHUNK_BYTES else log.segment_end(position)
        return 0
