"""The files of a store: a directory, or memory with the same behaviour.

Rule: the store uses the disk only through these two protocols, so that a
test can make any single operation fail, tear or be forgotten. Paths are
relative, with `/`, and never leave the directory.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Protocol

from rocketapp.errors import ConfigError

Bytes = bytes | bytearray | memoryview

SECTOR_BYTES = 512
LOCK_NAME = "lock"
"""Apache RocketMQ locks the same file, so that neither opens what the other has open."""
OWN_STATE = "config/queueLocks.json"
"""Our own state, which Apache RocketMQ does not keep up. It is removed if Apache RocketMQ has used the directory."""


class File(Protocol):
    """An open file, which is read and written at any place."""

    def read(self, size: int, at: int) -> bytes:
        """The bytes from `at` on: fewer at the end of the file. Bytes that were never written are zero."""

    def write(self, data: Bytes, at: int) -> None:
        """Write everything. After an OSError none, some or all of it may have been written."""

    def truncate(self, size: int) -> None:
        """Cut, or extend with zeros that need no disk space."""

    def size(self) -> int: ...

    def sync(self) -> None:
        """Return when everything written survives a loss of power."""

    def close(self) -> None: ...


class Files(Protocol):
    """The directory of one store."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. `create` makes a missing file and its directories."""

    def names(self, directory: str) -> list[str]:
        """The names in a directory, sorted; none if it does not exist."""

    def rename(self, old: str, new: str) -> None:
        """Rename atomically; an existing file is replaced, a missing directory is made."""

    def remove(self, path: str) -> None:
        """Remove a file or an empty directory, if it exists."""

    def sync_directory(self, directory: str) -> None:
        """Sync the names that were created, renamed or removed in a directory, and a new directory's own name."""

    def used(self) -> float:
        """The part of the disk that is used, 0 to 1."""

    def place(self, path: str) -> str:
        """The name of a file in errors."""

    def close(self) -> None:
        """Release the directory, so that another broker may open it."""


def read_whole(files: Files, path: str) -> bytes | None:
    """The content of a file, or None if it does not exist."""
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    with closing(file):
        return file.read(file.size(), 0)


def read_readable(file: File, size: int, at: int, unreadable: bytes) -> bytes:
    """Read what the disk gives back, and this byte for each one of a sector that fails twice."""
    try:
        return file.read(size, at)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    first, last = at // SECTOR_BYTES, (at + size - 1) // SECTOR_BYTES
    if first == last:
        try:
            return file.read(size, at)
        except OSError:
            return unreadable * size
    half = (first + last + 1) // 2 * SECTOR_BYTES
    return read_readable(file, half - at, at, unreadable) + read_readable(file, at + size - half, half, unreadable)


def replace_whole(files: Files, path: str, data: bytes) -> None:
    """Replace the content of a file. After a crash it is the old or the new one, never a mixture."""
    files.rename(write_new(files, path, data), path)
    files.sync_directory(directory_of(path))


def write_new(files: Files, path: str, data: bytes) -> str:
    """Write content durably into a new file beside the one that it will replace; return its path."""
    new = path + ".tmp"
    with closing(files.open(new, create=True)) as file:
        file.truncate(0)
        file.write(data, 0)
        file.sync()
    return new


def directory_of(path: str) -> str:
    return path.rpartition("/")[0]


class OpenFiles:
    """Open files. Above the limit, or when descriptors are used up, the least recently used one is closed."""

    def __init__(self, files: Files, most: int) -> None:
        self.files = files
        self._most = most
        self._open: OrderedDict[str, File] = OrderedDict()

    def get(self, path: str, *, create: bool = False) -> File:
        """The open file, which belongs to this object: it may be closed by the next call."""
        file = self._open.get(path)
        if file is not None:
            self._open.move_to_end(path)
            return file
        if len(self._open) >= self._most:
            self._open.popitem(last=False)[1].close()
        file = self._open[path] = self.open(path, create=create)
        return file

    def open(self, path: str, *, create: bool = False) -> File:
        """A new open file, which belongs to the caller. One of ours is closed for it when descriptors are used up."""
        while True:
            try:
                return self.files.open(path, create=create)
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._open:
                    raise
                self._open.popitem(last=False)[1].close()

    def forget(self, path: str) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()


class DirectoryFiles:
    """A real directory, locked for this broker from construction to `close`."""

    def __init__(self, path: str) -> None:
        self._root = Path(path)
        self._new_directories: set[Path] = set()
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _take_lock(self._root)

    def __repr__(self) -> str:
        return f"<DirectoryFiles {self._root}>"

    def open(self, path: str, *, create: bool = False) -> File:
        full, flags = self._full(path), os.O_RDWR | os.O_CLOEXEC
        if create:
            self._make_directory(full.parent)
            flags |= os.O_CREAT
        return _OsFile(os.open(full, flags, 0o600), full)

    def names(self, directory: str) -> list[str]:
        with suppress(FileNotFoundError, NotADirectoryError):
            return sorted(entry.name for entry in self._full(directory).iterdir())
        return []

    def rename(self, old: str, new: str) -> None:
        self._make_directory(self._full(new).parent)
        self._full(old).replace(self._full(new))

    def remove(self, path: str) -> None:
        full = self._full(path)
        with suppress(FileNotFoundError):
            (full.rmdir if full.is_dir() else full.unlink)()

    def sync_directory(self, directory: str) -> None:
        full = self._full(directory)
        _sync_directory(full)
        while full in self._new_directories:
            self._new_directories.discard(full)
            full = full.parent
            _sync_directory(full)

    def used(self) -> float:
        _, used, free = shutil.disk_usage(self._root)
        return used / max(used + free, 1)  # what only the administrator may still fill counts as used

    def place(self, path: str) -> str:
        return str(self._root / path)

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _full(self, path: str) -> Path:
        if path.startswith("/") or ".." in path.split("/"):
            raise ValueError(f"{path!r} leaves the data directory")
        return self._root / path

    def _make_directory(self, directory: Path) -> None:
        if directory.is_dir():
            return
        self._make_directory(directory.parent)
        directory.mkdir(mode=0o700, exist_ok=True)
        self._new_directories.add(directory)


def _sync_directory(directory: Path) -> None:
    opened = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _lock_first_byte(opened: int) -> None:
    """Lock what Apache RocketMQ locks. The lock belongs to the open file: another one of this process is refused too.

    A lock of the process, as Java takes it, would be lost when this process closed any other descriptor of the file.
    """
    import fcntl

    if hasattr(fcntl, "F_OFD_SETLK"):
        fcntl.fcntl(opened, fcntl.F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        return
    fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.lockf(opened, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)


def _take_lock(root: Path) -> int:
    """Lock the directory, also against a broker in this process, and name this process in the lock file."""
    opened = os.open(root / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock_first_byte(opened)
    except OSError as error:
        holder = os.pread(opened, 32, 0).decode("ascii", "replace").strip()
        os.close(opened)
        if error.errno not in (errno.EACCES, errno.EAGAIN):
            raise
        who = f" (process {holder})" if holder.isdigit() else ""
        raise ConfigError(
            str(root),
            f"data directory is in use by another broker{who}: stop that one, or choose another directory (broker.dir)",
        ) from None
    if os.pread(opened, 4, 0) == b"lock":  # what Apache RocketMQ writes into it, where we write our process id
        (root / OWN_STATE).unlink(missing_ok=True)
    os.ftruncate(opened, 0)
    os.pwrite(opened, str(os.getpid()).encode(), 0)
    return opened


_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class _OsFile:
    """A file descriptor. Its errors name the file, which those of the operating system do not."""

    __slots__ = ("_fd", "_path")

    def __init__(self, fd: int, path: Path) -> None:
        self._fd, self._path = fd, path

    def read(self, size: int, at: int) -> bytes:
        try:
            return os.pread(self._fd, size, at)
        except OSError as error:
            raise self._named(error) from None

    def write(self, data: Bytes, at: int) -> None:
        try:
            written = os.pwrite(self._fd, data, at)
            while written < len(data):  # usually the disk is full, and the next write raises ENOSPC
                written += os.pwrite(self._fd, memoryview(data)[written:], at + written)
        except OSError as error:
            raise self._named(error) from None

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self._fd, size)
        except OSError as error:
            raise self._named(error) from None

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        try:
            _sync_data(self._fd)
        except OSError as error:
            raise self._named(error) from None

    def close(self) -> None:
        os.close(self._fd)

    def _named(self, error: OSError) -> OSError:
        return OSError(error.errno, error.strerror, str(self._path))


class MemoryFiles:
    """A directory in memory, which counts as full at `most_bytes`. Zeros at the end of a file need no memory."""

    def __init__(self, most_bytes: int = 1 << 40) -> None:
        self._contents: dict[str, _MemoryFile] = {}
        self._most_bytes = most_bytes

    def __repr__(self) -> str:
        return f"<MemoryFiles {len(self._contents)} files>"

    def open(self, path: str, *, create: bool = False) -> File:
        content = self._contents.get(path)
        if content is None:
            if not create:
                raise FileNotFoundError(path)
            content = self._contents[path] = _MemoryFile()
        return content

    def names(self, directory: str) -> list[str]:
        start = f"{directory}/" if directory else ""
        return sorted({path[len(start) :].partition("/")[0] for path in self._contents if path.startswith(start)})

    def paths(self) -> Iterator[str]:
        """The path of every file, sorted."""
        return iter(sorted(self._contents))

    def rename(self, old: str, new: str) -> None:
        try:
            self._contents[new] = self._contents.pop(old)
        except KeyError:
            raise FileNotFoundError(old) from None

    def remove(self, path: str) -> None:
        self._contents.pop(path, None)

    def sync_directory(self, directory: str) -> None:
        return

    def used(self) -> float:
        return sum(len(content.data) for content in self._contents.values()) / self._most_bytes

    def place(self, path: str) -> str:
        return f"memory:{path}"

    def close(self) -> None:
        return


class _MemoryFile:
    """Bytes up to the last written one, and zeros from there to the size. Who closes it takes it from nobody else."""

    __slots__ = ("_size", "data")

    def __init__(self) -> None:
        self.data = bytearray()
        self._size = 0

    def read(self, size: int, at: int) -> bytes:
        with memoryview(self.data) as view:
            data = bytes(view[at : at + size])
        missing = min(at + size, self._size) - at - len(data)
        return data + bytes(missing) if missing > 0 else data

    def write(self, data: Bytes, at: int) -> None:
        if len(self.data) < at:
            self.data.extend(bytes(at - len(self.data)))
        self.data[at : at + len(data)] = data
        self._size = max(self._size, at + len(data))

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self._size = size

    def size(self) -> int:
        return self._size

    def sync(self) -> None:
        return

    def close(self) -> None:
        return
