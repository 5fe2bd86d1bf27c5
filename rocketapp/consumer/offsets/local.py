"""The offsets of one member of a broadcast group, in a file of its own: brokers keep one offset per group.

The file is `broadcast_dir/cluster/group/worker-N.json`. It is written beside itself and renamed into place; the
previous one stays as `.bak`. A lock says which process owns it; a second process takes the next number, because two
would overwrite each other's offsets.

A file that cannot be read or written stops nothing: that is reported, and queues without an offset begin by their start
rule.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
from collections.abc import Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

import msgspec

from rocketapp.consumer.brokers import GroupOffsets
from rocketapp.consumer.member import Member
from rocketapp.errors import RequestTimeoutError
from rocketapp.model.event import OffsetsFile
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.queue_identity import Landmark
from rocketapp.tasks import in_daemon_thread

_UNNAMED = "unnamed"
"""Stands for the cluster of `--name-server`."""
_BEGINS = "queues begin by their start rule"
_PATIENCE = 5.0
"""Seconds that a disk may take when the caller names no other time."""
_AGAIN = 5.0
"""Seconds until what a disk did not take is written again."""


def folder_of(directory: str, *, cluster: str, group: str) -> Path:
    """The folder with the offset files of a group on this machine."""
    return Path(directory) / _folder(cluster or _UNNAMED) / _folder(group)


def _folder(name: str) -> str:
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


class LocalOffsets(GroupOffsets):
    """The offsets of a group in one file, or in memory only."""

    def __init__(self, member: Member, folder: Path, worker: int | None) -> None:
        """`worker`: the number of its file, if free; None keeps offsets only in memory."""
        self._member, self._folder, self._worker = member, folder, worker
        self._path: Path | None = None
        """Its file, once it is open."""
        self._offsets: dict[MessageQueue, int] = {}
        self._topics: frozenset[str] = frozenset()
        """Those of the queues that the file knew."""
        self._written_at = 0.0
        """When that was written, in seconds since 1970."""
        self._lock: int | None = None
        """The descriptor of the lock file."""
        self._is_whole = False
        """The file in place was read or written by us without an error: it may become the backup."""
        self._next: asyncio.Task[None] | None = None
        """The write that has not begun yet: it takes along what is committed until then."""
        self._again: asyncio.TimerHandle | None = None
        """The last write has failed: the file lacks offsets that are committed, and is written again then."""
        self._writing = asyncio.Lock()
        self._told = ""

    def __repr__(self) -> str:
        return f"<LocalOffsets {self._path or 'in memory'}: {len(self._offsets)} queues>"

    # The life of the file.

    def open(self) -> None:
        """Lock a file and read it."""
        if self._worker is None or self._path is not None:
            return
        others = []
        for number in count(self._worker):
            self._path = path = self._folder / f"worker-{number}.json"
            try:
                is_ours = self._lock_file(path)
            except OSError as error:
                self._tell(f"it cannot be locked: {_why(error)}")
                break
            if is_ours:
                break
            others.append(path.name)
        if others:
            self._tell(f"used because another process has {', '.join(others)}")
        self._read(path)

    def close(self) -> None:
        """Release the file; also in a forked child, whose parent keeps it."""
        self._forget_again()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _lock_file(self, path: Path) -> bool:
        """Lock this file; False when another process has it. Raises OSError."""
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except OSError:
            os.close(descriptor)
            raise
        self._lock = descriptor
        return True

    def _read(self, path: Path) -> None:
        problems = []
        for each in (path, _backup(path)):
            try:
                self._written_at = each.stat().st_mtime
                self._offsets, landmarks = decode(each.read_bytes())
            except FileNotFoundError:
                continue
            except OSError as error:
                problems.append(f"{each.name}: {_why(error)}")
            except ValueError as error:
                problems.append(f"{each.name} is corrupt: {error}")
            else:
                for queue, landmark in landmarks.items():
                    self._member.brokers.goes_on_from(queue, landmark)
                self._topics = frozenset(queue.topic for queue in self._offsets)
                self._is_whole = each is path
                if each is not path:
                    problems = problems or [f"{path.name} is missing"]
                    self._tell(f"{'; '.join(problems)}: queues go on where {each.name} says, and may repeat messages")
                return
        self._tell(f"{'; '.join(problems) or 'it is missing'}: {_BEGINS}")

    def away_since(self, queue: MessageQueue) -> float | None:
        """Of a queue that has appeared while this member was away: when it was last there, in seconds since 1970."""
        return self._written_at if queue.topic in self._topics and queue not in self._offsets else None

    # What an offset store does.

    async def committed(self, queue: MessageQueue, *, timeout: float | None = None) -> int | None:
        """The offset; None when it is not known.

        Also writes what could not be written before: a queue that ends is looked at, and commits nothing more.
        """
        if self._again is not None and self._path is not None:
            with contextlib.suppress(RequestTimeoutError):
                await self._save(self._path, timeout)
        return self._offsets.get(queue)

    async def commit(self, queue: MessageQueue, offset: int, *, timeout: float | None = None) -> None:
        """Commit: everything below `offset` is done. Returns when that is written, or reported as not writable.

        Raises RequestTimeoutError when the disk does not answer in time; it may be written later.
        """
        self._offsets[queue] = offset
        if self._path is not None:
            await self._save(self._path, timeout)

    async def _save(self, path: Path, timeout: float | None) -> None:
        timeout = _PATIENCE if timeout is None else timeout
        try:
            async with asyncio.timeout(timeout):
                # A commit that is given up must not take the others along.
                await asyncio.shield(self._write_soon(path))
        except TimeoutError:
            raise RequestTimeoutError(str(path), f"the disk has not answered within {timeout:g} s") from None

    async def _write(self, path: Path) -> None:
        async with self._writing:
            self._next = None
            text = encode(self._offsets, self._member.brokers.landmarks)
            try:
                # A disk may take its time.
                put = partial(_put_in_place, path, text, keeps=self._is_whole)
                await in_daemon_thread(put, f"offsets of {self._member.name}")
            except (OSError, RuntimeError) as error:
                self._forget_again()
                # Queues that are idle commit nothing more that would take along what is not written.
                self._again = asyncio.get_running_loop().call_later(_AGAIN, self._write_soon, path)
                self._tell(f"{_why(error)}: after a restart, messages may come again, or {_BEGINS}")
            else:
                self._forget_again()
                self._is_whole, self._told = True, ""

    def _write_soon(self, path: Path) -> asyncio.Task[None]:
        self._next = self._next or self._member.tasks.start(self._write(path), f"offsets of {self._member.name}")
        return self._next

    def _forget_again(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            self._told = problem
            self._member.observe(OffsetsFile(self._member.name, str(self._path), problem))


class _Row(msgspec.Struct, omit_defaults=True):
    """One queue in a file."""

    topic: str
    broker: str
    # A larger one is refused by the broker at every pull: its queue would stand still for ever.
    queue: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    offset: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    landmark: str | None = None


class _File(msgspec.Struct):
    version: Literal[1, 2]
    """1 had no landmarks."""
    offsets: list[_Row]


def encode(offsets: Mapping[MessageQueue, int], landmarks: Mapping[MessageQueue, Landmark]) -> bytes:
    """The content of a file. `landmarks`: the records that identify the queues."""
    marks = {queue: mark.text() for queue, mark in landmarks.items()}
    rows = [_Row(*queue, offset, marks.get(queue)) for queue, offset in sorted(offsets.items())]
    return json.dumps(msgspec.to_builtins(_File(2, rows)), indent=1).encode() + b"\n"


def decode(text: bytes) -> tuple[dict[MessageQueue, int], dict[MessageQueue, str]]:
    """The offsets and landmarks in a file. Raises ValueError."""
    try:
        rows = msgspec.json.decode(text, type=_File).offsets
    except RecursionError as error:
        raise ValueError(str(error)) from None
    queues = [(MessageQueue(row.topic, row.broker, row.queue), row) for row in rows]
    landmarks = {queue: row.landmark for queue, row in queues if row.landmark is not None}
    return {queue: row.offset for queue, row in queues}, landmarks


def _put_in_place(path: Path, text: bytes, *, keeps: bool) -> None:
    """Replace the file atomically. `keeps`: the previous one becomes the backup. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())  # a power cut must not leave an empty file behind a new name
    if keeps:
        with contextlib.suppress(FileNotFoundError):
            path.replace(_backup(path))
    new.replace(path)


def _backup(path: Path) -> Path:
    return path.with_name(f"{path.name}.bak")


def _why(error: OSError | RuntimeError) -> str:
    """RuntimeError: the process may have no more threads."""
    return (getattr(error, "strerror", None) or str(error)).lower()
