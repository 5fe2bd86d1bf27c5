"""How far a replay of dead letters is, in a file: a replay that ends in any way goes on from it.

The file is written before each window of messages is sent, and says two things: everything before `following` is
replayed, and the window that follows is perhaps under way, into queues that held `targets` before. A replay that
goes on reads those queues from there, and so knows which of the window were stored before it ended. Nothing is sent
that is not in the file, and nothing counts as sent before the broker has confirmed it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rocketapp.errors import RocketAppError
from rocketapp.model.message_queue import MessageQueue

VERSION = 1


class ReplayStateError(RocketAppError):
    """A file cannot be used for this replay."""

    def __init__(self, file: Path, problem: str) -> None:
        super().__init__(file, problem)
        self.file: Path = file
        self.problem: str = problem

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Window:
    """Dead letters of one queue whose copies are perhaps under way."""

    queue: MessageQueue
    begin: int
    end: int
    targets: Mapping[MessageQueue, int]
    """Where their copies may lie: from this offset on."""


@dataclass(slots=True)
class ReplayState:
    """What one group's replays have done so far."""

    group: str
    cluster: str
    """Which cluster it is of, in the words of the command line."""
    to_group: bool
    following: dict[MessageQueue, int] = field(default_factory=dict)
    """By queue of dead letters: the first that is not replayed."""
    ends: dict[MessageQueue, int] = field(default_factory=dict)
    """By queue: the end of the replay that is under way. What arrives later is of the next one."""
    replayed: int = 0
    """Since this replay was begun."""
    window: Window | None = None

    @property
    def left(self) -> int:
        """Offsets that are still to be replayed."""
        return sum(max(end - self.following.get(queue, 0), 0) for queue, end in self.ends.items())

    def to_json(self) -> dict[str, Any]:
        window = self.window
        return {
            "version": VERSION,
            "group": self.group,
            "cluster": self.cluster,
            "to": "group" if self.to_group else "topic",
            "replayed": self.replayed,
            "following": _table(self.following),
            "ends": _table(self.ends),
            "window": None
            if window is None
            else {
                "queue": _name(window.queue),
                "begin": window.begin,
                "end": window.end,
                "targets": _table(window.targets),
            },
        }

    @classmethod
    def from_json(cls, members: Any) -> ReplayState:
        """Raises ValueError, KeyError, TypeError or AttributeError for anything else."""
        if members["version"] != VERSION:
            raise ValueError(f"version {members['version']} is not {VERSION}")
        told = members["window"]
        window = told and Window(_queue(told["queue"]), int(told["begin"]), int(told["end"]), _offsets(told["targets"]))
        return cls(
            str(members["group"]),
            str(members["cluster"]),
            members["to"] == "group",
            _offsets(members["following"]),
            _offsets(members["ends"]),
            int(members["replayed"]),
            window,
        )


class StateFile:
    """The file of one replay, held by one process at a time."""

    def __init__(self, path: Path) -> None:
        self.path: Path = path

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within: no other replay uses the file. Raises ReplayStateError when one does."""
        lock = self.path.with_name(self.path.name + ".lock")
        try:
            opened = os.open(lock, os.O_CREAT | os.O_RDWR, 0o644)
        except OSError as error:
            problem = f"cannot be written ({error.strerror}): give another with --state"
            raise ReplayStateError(self.path, problem) from None
        try:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise ReplayStateError(self.path, "another replay uses it: wait for its end") from None
            yield
        finally:
            os.close(opened)

    def read(self) -> ReplayState | None:
        """None before one was written. Raises ReplayStateError for one that is damaged."""
        try:
            return ReplayState.from_json(json.loads(self.path.read_bytes()))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ReplayStateError(self.path, f"cannot be read ({error.strerror})") from None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            problem = f"is not the state of a replay ({error}): move it away, or give another with --state"
            raise ReplayStateError(self.path, problem) from None

    def write(self, state: ReplayState) -> None:
        """Whole or not at all, and on disk when it returns. Raises ReplayStateError."""
        unfinished = self.path.with_name(f".{self.path.name}.new")
        try:
            with unfinished.open("wb") as file:
                file.write(json.dumps(state.to_json(), indent=2).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self.path)
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)  # otherwise a power cut may bring the last file back, and with it its window
            finally:
                os.close(folder)
        except OSError as error:
            raise ReplayStateError(self.path, f"cannot be written ({error.strerror})") from None


def _table(offsets: Mapping[MessageQueue, int]) -> dict[str, int]:
    return {_name(queue): offset for queue, offset in sorted(offsets.items())}


def _offsets(table: Mapping[str, Any]) -> dict[MessageQueue, int]:
    return {_queue(name): int(offset) for name, offset in table.items()}


def _name(queue: MessageQueue) -> str:
    return f"{queue.topic}@{queue.broker_name}:{queue.queue_id}"


def _queue(name: str) -> MessageQueue:
    topic, _, rest = name.partition("@")
    broker, _, number = rest.rpartition(":")
    return MessageQueue(topic, broker, int(number))
