"""The commit log: the records of all topics, one after the other, in segments of equal size.

Rule: all bytes after `end` are zero. Incomplete writes are cut off at once, so that stale bytes can never be taken for
records. What recovery does not accept is put aside in `cut/`, and never deleted.

Only the segment that is written, and a full one that is not synced yet, stay open; others are opened when they are
read. A second segment is not filled before the one before it was synced, so all but the last two always are.
"""

from __future__ import annotations

from contextlib import closing, suppress
from typing import NamedTuple

from rocketapp.broker.store.files import Bytes, File, Files, OpenFiles, read_readable
from rocketapp.broker.store.stored import UNREADABLE, blank, is_empty
from rocketapp.errors import ConfigError, StoreError

DIRECTORY, ASIDE = "commitlog", "cut"
BLANK_BYTES = 8
"""Bytes kept free at the end of a segment for the blank record."""

_OPEN_SEGMENTS = 32
_AHEAD_BYTES = 1 << 20
"""How far zeros are written ahead where every write is synced."""
_CHUNK_BYTES = 1 << 20


def segment_name(position: int) -> str:
    return f"{DIRECTORY}/{position:020d}"


class Segment(NamedTuple):
    """One file of the log, opened for who reads it in another thread; to be closed by that one."""

    start: int
    end: int
    file: File


class CommitLog:
    """Segments by position. `end` is the position of the next record, `files_end` the end of the last segment."""

    def __init__(self, files: Files, segment_bytes: int, *, writes_ahead: bool = False) -> None:
        """`writes_ahead`: also write the zeros that follow: a sync that needs no new place on disk is faster."""
        self._files, self._writes_ahead = files, writes_ahead
        self._segment_bytes = segment_bytes
        self._reading = OpenFiles(files, most=_OPEN_SEGMENTS)
        self._tail: File | None = None
        self._tail_start = -1
        self._written_end = 0
        """Up to here zeros were written ahead of the records; some of them were cut off again after an error."""
        self._full: list[File] = []
        """Segments that are full and open, because no flush has covered them yet; all but the last one are synced."""
        self._was_cut = False
        """Whether the last segment was cut back since the last roll, which a loss of power may leave half done."""
        self.min_position: int = 0
        self.end: int = 0
        self.files_end: int = 0
        self.trusted_from: int = 0
        """Records from here on are whole: since the start they were written here, or searched without a finding."""
        self._doubted = 0
        """Where `trusted_from` will be when the search that goes on has ended."""
        self._find_segments()

    def __repr__(self) -> str:
        return f"<CommitLog {self.min_position} to {self.end}>"

    def segment_start(self, position: int) -> int:
        """The start of the segment that contains this position."""
        return position - (position - self.min_position) % self._segment_bytes

    def segment_end(self, position: int) -> int:
        """The end of the segment that contains this position."""
        return self.segment_start(position) + self._segment_bytes

    def open_segment(self, position: int) -> Segment:
        """The segment that contains this position. Raises OSError, also for one that is deleted or not made yet."""
        start = self.segment_start(position)
        return Segment(start, start + self._segment_bytes, self._reading.open(segment_name(start)))

    def read(self, position: int, size: int) -> bytes:
        """Bytes of one segment: fewer at its end, none outside the log. What the disk does not give is `UNREADABLE`."""
        if not self.min_position <= position < self.files_end:
            return b""
        at = (position - self.min_position) % self._segment_bytes
        start = position - at
        tail = self._tail
        file = self._reading.get(segment_name(start)) if tail is None or start != self._tail_start else tail
        size = min(size, self._segment_bytes - at)
        try:
            return file.read(size, at)
        except OSError:
            self.distrust_below(position + size)
            return read_readable(file, size, at, UNREADABLE)

    def distrust_below(self, position: int) -> None:
        """Records that begin before this position are whole only if a look at them says so."""
        position = min(position, self.end)
        self.trusted_from, self._doubted = max(self.trusted_from, position), max(self._doubted, position)

    def begin_search(self) -> None:
        """From now on whoever finds damage says so to `distrust_below`."""
        self._doubted = self.min_position

    def end_search(self) -> None:
        """Everything that was in the log when the search began was looked at."""
        self.trusted_from = self._doubted

    @property
    def max_append_bytes(self) -> int:
        """The most bytes of records that a segment has room for."""
        return self._segment_bytes - BLANK_BYTES

    def next_position(self, size: int) -> int:
        """Where `make_room` would put so many bytes."""
        if self._tail is None or self.end + size <= self._tail_start + self.max_append_bytes:
            return self.end
        return self._tail_start + self._segment_bytes

    def make_room(self, size: int) -> int:
        """The position of the next records, which have so many bytes. Begins a segment if the last has no room."""
        place = self.next_position(size)
        if self._tail is None or place != self.end:
            self._roll(place)
        return place

    def write(self, data: Bytes) -> None:
        """Append after `make_room`. When it raises StoreError nothing was written, unless it says `is_unknown`."""
        end, tail = self.end, self._tail
        assert tail is not None
        size = len(data)
        if self._writes_ahead and end + size > self._written_end:
            self._written_end = min(end + size + _AHEAD_BYTES, self._tail_start + self._segment_bytes)
            data = bytes(data).ljust(self._written_end - end, b"\0")
        try:
            tail.write(data, end - self._tail_start)
        except OSError as error:
            self._undo(end, error)
        self.end = end + size

    # Flushing. Any thread may sync the files; the other steps belong to the thread that writes.

    def unsynced(self) -> list[File]:
        """The files that a flush has to sync, in the order of the log; all but the last one are full."""
        return self._full if self._tail is None else [*self._full, self._tail]

    def synced(self, files: list[File]) -> None:
        """These files, which were full before, were synced, and need not stay open."""
        while self._full and self._full[0] in files:
            self._full.pop(0).close()

    def next_segment(self) -> int | None:
        """The position of a segment to create soon, because the last one is half full; else None."""
        half = self._tail_start + self._segment_bytes // 2
        return self.files_end if self.end > half and self._tail_start + self._segment_bytes == self.files_end else None

    def create(self, position: int) -> None:
        """Create an empty segment, durably. Raises OSError. Any thread may call it; `created` follows."""
        with closing(self._files.open(segment_name(position), create=True)) as segment:
            segment.truncate(self._segment_bytes)
            segment.sync()
        self._files.sync_directory(DIRECTORY)

    def created(self, position: int) -> None:
        if position == self.files_end:
            self.files_end += self._segment_bytes

    def begin_at(self, position: int) -> list[str]:
        """Let the log begin at this segment; return the files before it, which nothing reads any more."""
        paths = [segment_name(start) for start in range(self.min_position, position, self._segment_bytes)]
        for path in paths:
            self._reading.forget(path)
        self.min_position = position
        return paths

    def begin_empty(self, position: int) -> None:
        """Let an empty log begin at this position, which is the start of a segment. Raises StoreError."""
        if self.files_end != self.min_position or position % self._segment_bytes:
            raise StoreError(f"a log of segments of {self._segment_bytes} bytes cannot begin at {position}")
        self.min_position = self.end = self.files_end = self._tail_start = position

    # Recovery.

    def begin(self, end: int, *, synced: int, keeps_rest: bool, is_ours: bool = True) -> None:
        """End the log here, to be continued. What lies behind is put aside if `keeps_rest`; otherwise it is empty.

        What was not synced is synced now. What is ours is written again before: after a failed sync its pages may be
        in memory only.
        """
        keep = max(self.segment_end(end - 1), self.min_position + self._segment_bytes)
        while self.files_end > keep:
            start = self.files_end - self._segment_bytes
            self._put_aside(start)
            self.files_end = start
        self.end = self.trusted_from = self._tail_start = end
        if end < self.files_end:
            start = self.segment_start(end)
            self._tail, self._tail_start = self._files.open(segment_name(start)), start
            if keeps_rest:
                self._copy_aside(end)
            self._zero_from(end)
            self._tail.sync()
        self._sync_from(max(synced, self.min_position), end, is_ours=is_ours)

    def close(self) -> None:
        for file in self.unsynced():
            file.close()
        self._full, self._tail, self.files_end = [], None, self.min_position
        self._reading.close()

    def _find_segments(self) -> None:
        names = [name for name in self._files.names(DIRECTORY) if len(name) == 20 and name.isdigit()]
        positions = [int(name) for name in names]
        self.min_position = self.end = self.files_end = positions[0] if positions else 0
        for position in positions:
            path = segment_name(position)
            if position != self.files_end:
                raise ConfigError(
                    self._files.place(path),
                    f"expected the segment that begins at {self.files_end}: restore it, or set broker.segment_bytes "
                    "to the size of the files",
                )
            self._check_size(path, is_last=position == positions[-1])
            self.files_end += self._segment_bytes

    def _check_size(self, path: str, *, is_last: bool) -> None:
        with closing(self._files.open(path)) as segment:
            size = segment.size()
            if size > self._segment_bytes or (size < self._segment_bytes and not is_last):
                raise ConfigError(
                    self._files.place(path), f"has {size} bytes: set broker.segment_bytes to the size of the files"
                )
            if size < self._segment_bytes:
                segment.truncate(self._segment_bytes)  # a crash came between creating and extending it

    def _roll(self, limit: int) -> None:
        """Begin the segment at `limit`. The full one is synced by the next flush, or before the next one is full."""
        end, tail = self.end, self._tail
        self._sync_before_roll()
        path = segment_name(limit)
        try:
            if limit == self.files_end:
                self.create(limit)
                self.created(limit)
            segment = self._reading.open(path)
        except OSError as error:
            raise StoreError(f"{self._files.place(path)}: {error}") from error
        if tail is not None:
            try:
                tail.write(blank(limit - end), end - self._tail_start)
            except OSError as error:
                segment.close()
                self._undo(end, error)
            self._full.append(tail)
        self._tail, self._tail_start, self.end = segment, limit, limit

    def _sync_before_roll(self) -> None:
        """Sync the segment before the last one, and the last one if it was cut: another follows only a whole one."""
        try:
            if self._full:
                self._full[-1].sync()
            if self._was_cut and self._tail is not None:
                self._tail.sync()
        except OSError as error:
            raise StoreError(f"sync failed: {error}", True) from error
        self._was_cut = False

    def _undo(self, end: int, error: OSError) -> None:
        """Remove the bytes that a failed write left behind, and raise StoreError."""
        place = self._files.place(segment_name(self._tail_start))
        self._was_cut = True
        try:
            self._zero_from(end)
        except OSError as second:
            raise StoreError(f"{place}: {error}; and cutting it back: {second}", True) from error
        raise StoreError(f"{place}: {error}") from error

    def _zero_from(self, position: int) -> None:
        """Truncate and extend. Unlike writing zeros this needs no disk space, and it frees what was allocated."""
        if self._tail is not None:
            self._tail.truncate(position - self._tail_start)
            self._tail.truncate(self._segment_bytes)

    def _put_aside(self, start: int) -> None:
        """Move a segment out of the log; remove it if nothing was written at its start."""
        is_unused = is_empty(self.read(start, _CHUNK_BYTES))
        self._reading.forget(segment_name(start))
        if is_unused:
            self._files.remove(segment_name(start))
        else:
            self._files.rename(segment_name(start), self._aside(start))
            self._files.sync_directory(ASIDE)
        self._files.sync_directory(DIRECTORY)

    def _copy_aside(self, position: int) -> None:
        start, limit = position, self.segment_end(position)
        with closing(self._files.open(self._aside(position), create=True)) as copy:
            while position < limit:
                chunk = self.read(position, min(_CHUNK_BYTES, limit - position))
                if not is_empty(chunk):
                    copy.write(chunk.rstrip(b"\0"), position - start)
                position += len(chunk)
            copy.sync()
        self._files.sync_directory(ASIDE)

    def _aside(self, position: int) -> str:
        taken = self._files.names(ASIDE)
        return next(
            f"{ASIDE}/{name}" for number in range(len(taken) + 1) if (name := f"{position:020d}.{number}") not in taken
        )

    def _sync_from(self, position: int, end: int, *, is_ours: bool) -> None:
        while position < end:
            start, limit = self.segment_start(position), min(self.segment_end(position), end)
            with closing(self._files.open(segment_name(start))) as file:
                while is_ours and position < limit:
                    size = min(_CHUNK_BYTES, limit - position)
                    with suppress(OSError):  # a bad sector stays one
                        file.write(file.read(size, position - start), position - start)
                    position += size
                file.sync()
                position = limit
