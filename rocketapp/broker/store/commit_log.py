"""The commit log: the records of all topics, one after the other, in segments of equal size.

Rule: all bytes after `end` are zero. Incomplete writes, and bytes that recovery does not accept,
are cut off at once, so that stale bytes can never be taken for records.
"""

from __future__ import annotations

from rocketapp.broker.store.files import Bytes, File, Files
from rocketapp.broker.store.stored import blank
from rocketapp.errors import ConfigError, StoreError

DIRECTORY = "commitlog"
BLANK_BYTES = 8
"""Bytes kept free at the end of a segment for the blank record."""


def segment_name(position: int) -> str:
    return f"{DIRECTORY}/{position:020d}"


class CommitLog:
    """Segments by position. `end` is the position of the next record."""

    def __init__(self, files: Files, segment_bytes: int) -> None:
        self._files = files
        self._segment_bytes = segment_bytes
        self._segments: list[File] = []
        self.min_position: int = 0
        self.end: int = 0
        self._open_segments()

    def __repr__(self) -> str:
        return f"<CommitLog {len(self._segments)} segments, {self.min_position} to {self.end}>"

    @property
    def files_end(self) -> int:
        """The end of the last segment, whether it is full or not."""
        return self.min_position + len(self._segments) * self._segment_bytes

    def segment_end(self, position: int) -> int:
        """The end of the segment that contains this position."""
        return position + self._segment_bytes - (position - self.min_position) % self._segment_bytes

    def read(self, position: int, size: int) -> bytes:
        """Bytes of one segment: fewer at its end, none outside the log."""
        index, at = divmod(position - self.min_position, self._segment_bytes)
        if not 0 <= index < len(self._segments):
            return b""
        return self._segments[index].read(size, at)

    def fits(self, position: int, size: int) -> bool:
        """Whether a record of this size fits at `position`, which is after `end` in the same segment."""
        return position + size + BLANK_BYTES <= self.segment_end(self.end)

    def place_for(self, size: int) -> int:
        """The position of a next record of this size. Begins a new segment if it does not fit into the last one."""
        if size + BLANK_BYTES > self._segment_bytes:
            raise StoreError(f"{size} bytes do not fit into a segment: see broker.segment_bytes")
        end = self.end
        if end == self.files_end:
            self._add_segment()
        elif end + size + BLANK_BYTES > (limit := self.segment_end(end)):
            self._roll(limit)
        return self.end

    def write(self, data: Bytes) -> None:
        """Append after `place_for`. When it raises StoreError nothing was written, unless it says `is_unknown`."""
        end = self.end
        try:
            self._segments[-1].write(data, (end - self.min_position) % self._segment_bytes)
        except OSError as error:
            self._undo(end, error)
        self.end = end + len(data)

    def sync(self) -> None:
        """Sync the last segment. Earlier ones were synced when they became full."""
        if self._segments:
            self._segments[-1].sync()

    def sync_all(self) -> None:
        for segment in self._segments:
            segment.sync()

    def current(self) -> File | None:
        """The segment that is being written; None for an empty log."""
        return self._segments[-1] if self._segments else None

    def cut(self, position: int) -> None:
        """Remove everything from `position` on, and sync."""
        keep = max(1, -(-(position - self.min_position) // self._segment_bytes))
        while len(self._segments) > keep:
            self._segments.pop().close()
            self._files.remove(segment_name(self.files_end))
            self._files.sync_directory(DIRECTORY)
        if position < self.files_end:
            self._zero_from(position)
            self._segments[-1].sync()
        self.end = position

    def close(self) -> None:
        for segment in self._segments:
            segment.close()
        self._segments.clear()

    def _open_segments(self) -> None:
        names = [name for name in self._files.names(DIRECTORY) if len(name) == 20 and name.isdigit()]
        positions = [int(name) for name in names]
        self.min_position = self.end = positions[0] if positions else 0
        for position in positions:
            path = segment_name(position)
            if position != self.files_end:
                raise ConfigError(
                    self._files.place(path),
                    f"expected the segment that begins at {self.files_end}: restore it, or set broker.segment_bytes "
                    "to the size of the files",
                )
            segment = self._files.open(path)
            self._segments.append(segment)
            self._check_size(segment, path, is_last=position == positions[-1])

    def _check_size(self, segment: File, path: str, *, is_last: bool) -> None:
        size = segment.size()
        if size == self._segment_bytes:
            return
        if size > self._segment_bytes or not is_last:
            raise ConfigError(
                self._files.place(path), f"has {size} bytes: set broker.segment_bytes to the size of the files"
            )
        segment.truncate(self._segment_bytes)  # a crash came between creating and extending it

    def _roll(self, limit: int) -> None:
        """Begin a new segment. Sync the old one now, because later syncs concern the last segment only."""
        end = self.end
        self._create_segment(limit)
        segment = self._segments[-1]
        try:
            segment.write(blank(limit - end), (end - self.min_position) % self._segment_bytes)
            segment.sync()
        except OSError as error:
            self._files.remove(segment_name(limit))
            self._undo(end, error)
        self._segments.append(self._files.open(segment_name(limit)))
        self.end = limit

    def _add_segment(self) -> None:
        position = self.files_end
        self._create_segment(position)
        self._segments.append(self._files.open(segment_name(position)))

    def _create_segment(self, position: int) -> None:
        path = segment_name(position)
        try:
            segment = self._files.open(path, create=True)
            try:
                segment.truncate(self._segment_bytes)
                segment.sync()
            finally:
                segment.close()
            self._files.sync_directory(DIRECTORY)
        except OSError as error:
            raise StoreError(f"{self._files.place(path)}: {error}") from error

    def _undo(self, end: int, error: OSError) -> None:
        """Remove the bytes that a failed write left behind, and raise StoreError."""
        place = self._files.place(segment_name(self.files_end - self._segment_bytes))
        try:
            self._zero_from(end)
        except OSError as second:
            raise StoreError(f"{place}: {error}; and cutting it back: {second}", True) from error
        raise StoreError(f"{place}: {error}") from error

    def _zero_from(self, position: int) -> None:
        """Truncate and extend. Unlike writing zeros this needs no disk space, and it frees what was allocated."""
        segment = self._segments[-1]
        segment.truncate((position - self.min_position) % self._segment_bytes)
        segment.truncate(self._segment_bytes)
