"""How far a replay of dead letters is, in a file: a replay that ends in any way goes on from it.

The file is written before each window of messages is sent, and says two things: everything before `following` is
replayed, and the window that follows is perhaps under way, into queues that held `targets` before. A replay that
goes on reads those queues from there, and so knows which of the window were stored before it ended. Nothing is sent
that is not in the file, and nothing counts as sent before the broker has confirmed it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from rocketapp.admin.cluster import AdminError
from rocketapp.model.message_queue import MessageQueue

Offsets = dict[str, int]
"""By the name of a queue, as its `str` is: JSON has no other keys."""


class Window(msgspec.Struct, frozen=True):
    """Dead letters of one queue whose copies may be under way."""

    queue: str
    begin: int
    end: int
    targets: Offsets
    """Where their copies may lie: from this offset on."""
    is_single: bool = False
    """One dead letter that was asked for, ahead of those before it."""


class ReplayState(msgspec.Struct):
    """The progress of one group's replays."""

    group: str
    cluster: str
    """Which cluster it is of, in the words of the command line."""
    following: Offsets = {}
    """By queue of dead letters: the first that is not replayed."""
    ends: Offsets = {}
    """By queue: the end of the replay that is under way. What arrives later is of the next one."""
    replayed: int = 0
    """Since this replay was begun."""
    window: Window | None = None
    name: str = ""
    """Of the replay that is under way: a member that has missed a question of it is not asked twice."""
    failed: int = 0
    """Of those replayed: whose handler failed again. They are dead letters again, with the new reason."""
    perhaps_twice: list[str] = []
    """Places of dead letters that were under way at members when a replay ended, or a member was lost."""
    singly: list[str] = []
    """Places of dead letters at or behind `following` that were replayed one by one: they do not go out again."""
    version: Literal[1] = 1

    def __post_init__(self) -> None:
        known = () if self.window is None else (self.window.queue, *self.window.targets)
        for name in (*self.following, *self.ends, *known):
            queue_of(name)  # what a file says may be anything

    @property
    def left(self) -> int:
        """How many offsets are left to replay."""
        return sum(max(end - self.following.get(queue, 0), 0) for queue, end in self.ends.items())


class StateFile:
    """The file of one replay, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path

    def refused(self, problem: str) -> AdminError:
        """The error that this file cannot be used for the replay."""
        return AdminError(f"{self.path}: {problem}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Context manager that locks the file. Raises AdminError when another replay uses it."""
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            opened = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            problem = f"cannot be written ({error.strerror}): give another with --state"
            raise self.refused(problem) from None
        try:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_there = os.path.samestat(os.fstat(opened), lock.stat())  # not the one that another has just removed
            except OSError:
                is_there = False
            if not is_there:
                raise self.refused("another replay uses it: wait for its end")
            try:
                yield
            finally:
                lock.unlink(missing_ok=True)
        finally:
            os.close(opened)

    def read(self) -> ReplayState | None:
        """None before one was written. Raises AdminError for one that is damaged."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=ReplayState)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self.refused(f"cannot be read ({error.strerror})") from None
        except msgspec.DecodeError as error:
            problem = f"is not the state of a replay ({error}): move it away, or give another with --state"
            raise self.refused(problem) from None

    def write(self, state: ReplayState) -> None:
        """Write atomically, and to the disk. Raises AdminError."""
        unfinished = self.path.with_name(f".{self.path.name}.new")
        try:
            with unfinished.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(state), indent=2) + b"\n")
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # otherwise a power cut may bring the last file back, and with it its window
            finally:
                os.close(folder)
        except OSError as error:
            raise self.refused(f"cannot be written ({error.strerror})") from None


def queue_of(name: str) -> MessageQueue:
    """The queue with this `str`."""
    topic, _, rest = name.partition("@")
    broker, _, number = rest.rpartition(":")
    return MessageQueue(topic, broker, int(number))
