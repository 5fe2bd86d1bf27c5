"""The worst disk that a store may meet: it fails at any call, for a while, by sectors, or by losing its power.

It keeps what was written apart from what was synced. `killed` is what a killed process leaves; `without_power` loses
any part of what was not synced, in any order: whole writes, single sectors of them, truncations, and names that were
made, changed or removed since their directory was synced.

A sync that fails drops the dirty pages, as Linux does: they can still be read, a later sync succeeds, and a loss of
power takes them. A sector that is `bad` cannot be read until it is written.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

from rocketapp.broker.store.files import Bytes, File, MemoryFiles

SECTOR = 512


class Stopped(BaseException):
    """The machine stops here: no `except` of the program runs any more."""


class Inode:
    """A file's content: now, when it was last synced, and the steps between."""

    def __init__(self) -> None:
        self.data, self.size = bytearray(), 0
        self.synced: tuple[bytes, int] = b"", 0
        self.steps: list[tuple[int, bytes | None]] = []

    def write(self, at: int, data: bytes) -> None:
        if len(self.data) < at:
            self.data.extend(bytes(at - len(self.data)))
        self.data[at : at + len(data)] = data
        self.size = max(self.size, at + len(data))

    def truncate(self, size: int) -> None:
        del self.data[size:]
        self.size = size

    def step(self, at: int, data: bytes | None) -> None:
        if data is None:
            self.truncate(at)
        else:
            self.write(at, data)

    def sync(self) -> None:
        rest = self._rest()
        for at, data in self.steps:
            rest.step(at, data)
        self.synced = bytes(rest.data), rest.size
        self.steps.clear()

    def fail_sync(self) -> None:
        """The dirty pages are lost, and nothing is dirty any more. What the journal holds stays: truncations."""
        self.steps = [(at, data) for at, data in self.steps if data is None]

    def _rest(self) -> Inode:
        rest = Inode()
        rest.data, rest.size = bytearray(self.synced[0]), self.synced[1]
        return rest

    def survivor(self, random: Random) -> tuple[bytes, int]:
        """What is left of it after the power is gone."""
        rest = self._rest()
        keep = random.choice((0.0, 0.5, 0.9, 1.0))
        for at, data in self.steps:
            if data is None:
                if random.random() < keep:
                    rest.truncate(at)
                continue
            start = at
            while start < at + len(data):
                end = min(at + len(data), start - start % SECTOR + SECTOR)
                if random.random() < keep:
                    rest.write(start, data[start - at : end - at])
                start = end
            # The size grows with the write in the journal, whether or not its data arrived.
        return bytes(rest.data), rest.size


class Disk:
    """Files on that disk. `on_call(number, name, path)` sees each changing call before it is done, and may raise.

    `sees_reads`: calls that only open or read a file count as well.
    """

    def __init__(self, on_call: Callable[[int, str, str], None] | None = None, *, sees_reads: bool = False) -> None:
        self.names_now: dict[str, Inode] = {}
        self.names_synced: dict[str, Inode] = {}
        self.name_steps: list[tuple[str, Callable[[dict[str, Inode]], None]]] = []
        self.calls = 0
        self.on_call = on_call
        self.sees_reads = sees_reads
        self.bad: set[tuple[str, int]] = set()
        """Path and number of each sector that cannot be read."""
        self.ignore_sync: Callable[[str], bool] = lambda path: False

    def called(self, name: str, path: str) -> None:
        self.calls += 1
        if self.on_call is not None:
            self.on_call(self.calls, name, path)

    def open(self, path: str, *, create: bool = False) -> File:
        inode = self.names_now.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(path)
            self.called("create", path)
            made = inode = Inode()
            self._change_names(path, lambda names: names.__setitem__(path, made))
        elif self.sees_reads:
            self.called("open", path)
        return DiskFile(self, path, inode)

    def names(self, directory: str) -> list[str]:
        start = f"{directory}/" if directory else ""
        return sorted({path[len(start) :].partition("/")[0] for path in self.names_now if path.startswith(start)})

    def rename(self, old: str, new: str) -> None:
        self.called("rename", new)
        if old not in self.names_now:
            raise FileNotFoundError(old)

        def move(names: dict[str, Inode]) -> None:
            if old in names:
                names[new] = names.pop(old)

        self._change_names(new, move)

    def remove(self, path: str) -> None:
        self.called("remove", path)
        self._change_names(path, lambda names: _forget(names, path))

    def sync_directory(self, directory: str) -> None:
        self.called("sync_directory", directory)
        if self.ignore_sync(f"{directory}/"):
            return
        kept = []
        for of, change in self.name_steps:
            if of == directory:
                change(self.names_synced)
            else:
                kept.append((of, change))
        self.name_steps = kept

    def used(self) -> float:
        return 0.0

    def place(self, path: str) -> str:
        return f"disk:{path}"

    def close(self) -> None:
        return

    def killed(self) -> MemoryFiles:
        """What the process leaves that is killed now: the system still has everything."""
        return _memory({path: (bytes(inode.data), inode.size) for path, inode in self.names_now.items()})

    def without_power(self, random: Random) -> MemoryFiles:
        """What one loss of power leaves now."""
        names = dict(self.names_synced)
        keep = random.choice((0.0, 0.5, 0.9, 1.0))
        for _, change in self.name_steps:
            if random.random() < keep:
                change(names)
        return _memory({path: inode.survivor(random) for path, inode in names.items()})

    def _change_names(self, path: str, change: Callable[[dict[str, Inode]], None]) -> None:
        change(self.names_now)
        self.name_steps.append((path.rpartition("/")[0], change))


class DiskFile:
    """An open file of a Disk."""

    def __init__(self, disk: Disk, path: str, inode: Inode) -> None:
        self._disk, self._path, self._inode = disk, path, inode

    def read(self, size: int, at: int) -> bytes:
        inode, disk = self._inode, self._disk
        if disk.sees_reads:
            disk.called("read", self._path)
        if disk.bad and any((self._path, sector) in disk.bad for sector in _sectors(at, size)):
            raise OSError(errno.EIO, "Input/output error", self._path)
        data = bytes(inode.data[at : at + size])
        return data + bytes(max(0, min(at + size, inode.size) - at - len(data)))

    def write(self, data: Bytes, at: int) -> None:
        try:
            self._disk.called("write", self._path)
        except (OSError, Stopped):
            # A write that is interrupted may have done a part of its work.
            part = bytes(data)[: len(data) // 2]
            self._inode.write(at, part)
            self._inode.steps.append((at, part))
            raise
        self._inode.write(at, bytes(data))
        self._inode.steps.append((at, bytes(data)))
        self._disk.bad.difference_update((self._path, sector) for sector in _sectors(at, len(data)))

    def truncate(self, size: int) -> None:
        self._disk.called("truncate", self._path)
        self._inode.truncate(size)
        self._inode.steps.append((size, None))

    def size(self) -> int:
        return self._inode.size

    def sync(self) -> None:
        try:
            self._disk.called("sync", self._path)
        except OSError:
            self._inode.fail_sync()
            raise
        if not self._disk.ignore_sync(self._path):
            self._inode.sync()

    def close(self) -> None:
        return


def _sectors(at: int, size: int) -> range:
    return range(at // SECTOR, -(-(at + size) // SECTOR))


def _memory(contents: dict[str, tuple[bytes, int]]) -> MemoryFiles:
    files = MemoryFiles()
    for path, (data, size) in contents.items():
        file = files.open(path, create=True)
        file.truncate(size)
        file.write(data, 0)
        file.truncate(size)
    return files


def disk_of(files: MemoryFiles) -> Disk:
    """A disk that holds these files, synced."""
    disk = Disk()
    for path in files.paths():
        content = files.open(path)
        file = disk.open(path, create=True)
        file.truncate(content.size())
        file.write(content.read(content.size(), 0).rstrip(b"\0"), 0)
        file.truncate(content.size())
        file.sync()
    for directory in {path.rpartition("/")[0] for path in files.paths()}:
        disk.sync_directory(directory)
    disk.calls = 0
    return disk


def _forget(names: dict[str, Inode], path: str) -> None:
    names.pop(path, None)
