"""The consume queue: the positions of the messages of one queue in the commit log.

Entry n of a queue is stored at byte 20 n of its files: physical offset, size, tags code.
Entries stay in memory until `write` is called. They can be rebuilt from the log, so losing them
costs time and no message.

Rule: entries are numbered without gaps. A queue whose first messages are missing may begin with holes: entries
that readers skip, as Apache RocketMQ writes them before the first entry of a file.
"""

from __future__ import annotations

import contextlib
import math
import struct
from bisect import bisect_left
from collections.abc import Callable

from rocketapp.broker.store.files import Bytes, Files, OpenFiles, directory_of, read_readable
from rocketapp.broker.store.stored import Stored

DIRECTORY = "consumequeue"
ENTRY = struct.Struct(">qiq")
ENTRY_BYTES = 20
FILE_ENTRIES = 300_000
FILE_BYTES = FILE_ENTRIES * ENTRY_BYTES
HOLE = ENTRY.pack(0, 0x7FFFFFFF, 0)
HOLE_SIZE = 0x7FFFFFFF

_OPEN_FILES = 128
_PROBED = 3276
"""Entries behind a missing one that are looked at, to tell a lost page from the end of the queue."""


Take = Callable[[Stored], object]
"""Called with each message of a queue when its entry is there. It is quick, does not raise, and does not append."""


class QueueFiles(OpenFiles):
    """The files of all consume queues, and what of them is not written or not synced."""

    def __init__(self, files: Files) -> None:
        super().__init__(files, most=_OPEN_FILES)
        self.unsynced: dict[str, bool] = {}
        """Paths written since their last sync, and whether the file is new, so that its name has to be synced too."""
        self.unwritten: dict[ConsumeQueue, None] = {}
        """Queues that have entries in memory only."""

    def write(self, path: str, data: Bytes, at: int) -> None:
        """Write into a file, which is made if it does not exist."""
        try:
            file = self.get(path)
        except FileNotFoundError:
            file = self.get(path, create=True)
            self.unsynced[path] = True
        if file.size() != FILE_BYTES:
            file.truncate(FILE_BYTES)
        file.write(data, at)
        self.unsynced.setdefault(path, False)

    def forget(self, path: str) -> None:
        """Nothing reads or syncs this file any more."""
        super().forget(path)
        self.unsynced.pop(path, None)

    def remove(self, path: str) -> None:
        self.forget(path)
        self.files.remove(path)

    def take_unsynced(self) -> dict[str, bool]:
        """What was written since the last call."""
        taken, self.unsynced = self.unsynced, {}
        return taken

    def put_back(self, unsynced: dict[str, bool]) -> None:
        """These could not be synced, and the next flush tries again."""
        for path, is_new in unsynced.items():
            self.unsynced[path] = is_new or self.unsynced.get(path, False)


class ConsumeQueue:
    """The entries of one queue. `min_offset` is the first that points to a message, `max_offset` the next new one."""

    def __init__(self, topic: str, queue_id: int, opened: QueueFiles) -> None:
        self.topic: str = topic
        self.queue_id: int = queue_id
        self.topic_bytes: bytes = topic.encode()
        self.min_offset: int = 0
        self.max_offset: int = 0
        self.last_physical: int = -1
        self.take: Take | None = None
        self._directory = f"{DIRECTORY}/{topic}/{queue_id}"
        self._opened = opened
        self._first_file = 0
        self._unwritten = bytearray()
        self._written = 0

    def __repr__(self) -> str:
        return f"<ConsumeQueue {self.topic}:{self.queue_id} {self.min_offset} to {self.max_offset}>"

    def put(self, physical: int, size: int, tags_code: int) -> None:
        """Add the entry of offset `max_offset`."""
        if not self._unwritten:
            self._opened.unwritten[self] = None
        self._unwritten += ENTRY.pack(physical, size, tags_code)
        self.last_physical = physical
        self.max_offset += 1

    def begin_at(self, offset: int) -> None:
        """Begin an empty queue at this offset; holes fill its file up to there."""
        self._first_file = offset // FILE_ENTRIES
        self._written = self._first_file * FILE_ENTRIES
        self._unwritten += HOLE * (offset - self._written)
        self._opened.unwritten[self] = None
        self.min_offset = self.max_offset = offset

    def entries(self, start: int, count: int) -> bytes:
        """`count` entries from offset `start` on, all within the queue."""
        if start >= self._written:
            at = (start - self._written) * ENTRY_BYTES
            return bytes(self._unwritten[at : at + count * ENTRY_BYTES])
        end = start + count
        parts = []
        while start < min(end, self._written):
            size = min(end, self._written, (start // FILE_ENTRIES + 1) * FILE_ENTRIES) - start
            parts.append(self._stored(start, size))
            start += size
        if start < end:
            parts.append(bytes(self._unwritten[: (end - start) * ENTRY_BYTES]))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def entry(self, offset: int) -> tuple[int, int, int]:
        """Physical offset, size and tags code of one message within the queue."""
        physical, size, tags_code = ENTRY.unpack(self.entries(offset, 1))
        return physical, size, tags_code

    def replace(self, offset: int, physical: int, size: int, tags_code: int) -> None:
        """Write another entry for this offset, which is within the queue."""
        data = ENTRY.pack(physical, size, tags_code)
        if offset >= self._written:
            at = (offset - self._written) * ENTRY_BYTES
            self._unwritten[at : at + ENTRY_BYTES] = data
        else:
            number, first = divmod(offset, FILE_ENTRIES)
            self._opened.write(self._path(number), data, first * ENTRY_BYTES)

    def write(self) -> None:
        """Write the entries in memory to their files. After an OSError the rest stays in memory for the next call."""
        while self._unwritten:
            number, first = divmod(self._written, FILE_ENTRIES)
            part = self._unwritten[: (FILE_ENTRIES - first) * ENTRY_BYTES]
            self._opened.write(self._path(number), part, first * ENTRY_BYTES)
            self._written += len(part) // ENTRY_BYTES
            del self._unwritten[: len(part)]
        self._opened.unwritten.pop(self, None)

    def open(self, max_offset: int | None = None) -> bool:
        """Open the files of an existing queue; False if a file is missing or has a wrong size.

        Without `max_offset` the queue ends where its first file begins; `keep_below` moves the end.
        """
        numbers = [int(name) // FILE_BYTES for name in self._names()]
        self._first_file = numbers[0] if numbers else 0
        first = self._first_file * FILE_ENTRIES
        self._written = self.max_offset = first if max_offset is None else max_offset
        self.min_offset = min(first, self.max_offset)
        whole = numbers == list(range(self._first_file, self._first_file + len(numbers)))
        whole = whole and all(self._opened.get(self._path(number)).size() == FILE_BYTES for number in numbers)
        return whole and first <= self.max_offset <= first + len(numbers) * FILE_ENTRIES

    def keep_below(self, position: int) -> None:
        """End the queue behind its last entry that points below this log position. Called after `open`."""
        low = self._first_file * FILE_ENTRIES
        high = low + len(self._names()) * FILE_ENTRIES
        while low < high:
            middle = (low + high) // 2
            found = self._last_below(middle, 1, position)
            if not found and not self._last_below(middle, 1, math.inf):
                found = self._last_below(middle, _PROBED, position)  # a page is lost: the queue may go on behind it
            if found:
                low = middle + found
            else:
                high = middle
        self.cut(low)
        if low > self._first_file * FILE_ENTRIES:
            self.last_physical = self.entry(low - 1)[0]

    def _last_below(self, offset: int, count: int, position: float) -> int:
        """How far behind `offset` the last of these entries ends that points below the position; 0 if none does."""
        try:
            data = self._stored(offset, count).rstrip(b"\0")
        except FileNotFoundError:
            return 0
        data += bytes(-len(data) % ENTRY_BYTES)
        entries = enumerate(ENTRY.iter_unpack(data), 1)
        return max((number for number, (physical, size, _) in entries if size > 0 and physical < position), default=0)

    def _stored(self, offset: int, count: int) -> bytes:
        """At most this many entries of one file, also behind the end of the queue."""
        number, first = divmod(offset, FILE_ENTRIES)
        return read_readable(self._opened.get(self._path(number)), count * ENTRY_BYTES, first * ENTRY_BYTES, b"\0")

    def cut(self, end: int) -> None:
        """End the queue at this offset. Called after `open`; `zero_behind` follows."""
        self._written = self.max_offset = end
        self.min_offset = min(self.min_offset, end)

    def zero_behind(self) -> None:
        """Remove everything after the last written entry from the files."""
        number, first = divmod(self._written, FILE_ENTRIES)
        for name in self._names():
            other = int(name) // FILE_BYTES
            path = self._path(other)
            if other > number or self._written == 0:
                self._opened.remove(path)
            elif other == number:
                file = self._opened.get(path)
                file.truncate(first * ENTRY_BYTES)
                file.truncate(FILE_BYTES)
                self._opened.unsynced.setdefault(path, False)

    def find_min(self, log_min: int) -> None:
        """Set `min_offset`: entries below it are holes, or point to deleted segments."""

        def is_there(offset: int) -> bool:
            physical, size, _ = self.entry(offset)
            return size != HOLE_SIZE and (size <= 0 or not 0 <= physical < log_min)  # a negative one is damaged

        first, end = self.min_offset, self.max_offset
        physical, size, _ = self.entry(first) if first < end else (0, HOLE_SIZE, 0)
        if not log_min <= physical <= self.last_physical or not 0 < size < HOLE_SIZE:
            self.min_offset = self.first_where(is_there, first, end)

    @staticmethod
    def first_where(holds: Callable[[int], bool], low: int, high: int) -> int:
        """The first offset of these of which that holds, and of all behind it; `high` without one."""
        return bisect_left(range(high), True, low, high, key=holds)

    def offset_before(self, offset: int, position: float) -> int:
        """This offset, or the end of the queue where it is beyond that: of what lies before a position of the log."""
        high = min(offset, self.max_offset)
        if self.last_physical < position or high <= self.min_offset or self.entry(high - 1)[0] < position:
            return high
        return self.first_where(lambda at: self.entry(at)[0] >= position, self.min_offset, high)

    def drop_front(self, log_min: int) -> list[str]:
        """Begin at the first message from this position on; return the files that are not needed then, but the last."""
        self.find_min(log_min)
        keep = min(self.min_offset, max(self._written - 1, 0)) // FILE_ENTRIES
        paths = [self._path(number) for number in range(self._first_file, keep)]
        for path in paths:
            self._opened.forget(path)
        self._first_file = max(keep, self._first_file)
        return paths

    def forget(self) -> list[str]:
        """Nothing reads or writes this queue any more: return its files and its directory, to be removed."""
        self._opened.unwritten.pop(self, None)
        paths = [f"{self._directory}/{name}" for name in self._opened.files.names(self._directory)]
        for path in paths:
            self._opened.forget(path)
        return [*paths, self._directory]

    def remove(self) -> None:
        """Delete the files of this queue."""
        for path in self.forget():
            self._opened.files.remove(path)

    def _names(self) -> list[str]:
        return [name for name in self._opened.files.names(self._directory) if len(name) == 20 and name.isdigit()]

    def _path(self, number: int) -> str:
        return f"{self._directory}/{number * FILE_BYTES:020d}"


def sync_written(files: Files, written: dict[str, bool]) -> dict[str, bool]:
    """Sync these files, and the names of new ones; return those that could not even be opened.

    Raises OSError when a sync failed: then pages of that file may be lost.
    """
    refused: dict[str, bool] = {}
    for path, is_new in written.items():
        try:
            file = files.open(path)
        except FileNotFoundError:  # its topic was deleted
            continue
        except OSError:
            refused[path] = is_new
            continue
        with contextlib.closing(file):
            file.sync()
    for directory in dict.fromkeys(directory_of(path) for path, is_new in written.items() if is_new):
        with contextlib.suppress(FileNotFoundError):
            files.sync_directory(directory)
    return refused
