"""What a process has in flight, noted down where it outlives the process, and what others learn of it.

Each worker has a slot in a mapped file, and writes into it which offsets it takes, once per run of messages. The pages
of a mapped file stay when the process dies, whatever ended it. A lock on the file says that its process lives. The
processes of one machine share a directory: a queue of one that died goes to another one, which has to know before it
begins. What becomes of such messages is decided in `state.quarantine`, and `quarantine` calls their handlers.

With Java's client, a message that ends its process does so again after every restart.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Iterable
from dataclasses import astuple
from pathlib import Path
from secrets import token_hex
from struct import Struct
from typing import Any

from rocketapp.clock import Clock
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.quarantine import Quarantine, Quarantined, Span, Turns, after_crash, still_quarantined

_SLOT = Struct("<Iqq")
_SLOTS = 4096
"""Workers of one process that are recorded."""
_SIZE = _SLOTS * _SLOT.size
_NOTHING = bytes(_SLOT.size)
_LATE = 1 << 31
"""In the number of a queue: the message was overtaken (`Span.is_late`)."""
_SUFFIX = ".hand"
_WRITE_INTERVAL = 1.0
"""Seconds between two writes of what left the quarantine. A death in between quarantines some messages once more."""


class Note:
    """Where one worker notes down what it has in flight. A thread may write."""

    __slots__ = ("_at", "_check", "_end", "_free", "_slots")

    def __init__(self, slots: mmap.mmap, at: int, free: list[int], check: Callable[[], None]) -> None:
        """`check`: ends a process that can do nothing more, while the note still says what was in flight."""
        self._slots, self._at, self._end, self._free, self._check = slots, at, at + _SLOT.size, free, check

    def write(self, record: bytes) -> None:
        """These items are in flight, or some of them."""
        self._check()
        self._slots[self._at : self._end] = record

    def write_next(self, record: bytes) -> None:
        """The same for each message of a run, whose begin was checked."""
        self._slots[self._at : self._end] = record

    def clear(self) -> None:
        """Nothing is in flight."""
        self._check()
        self._slots[self._at : self._end] = _NOTHING

    def close(self) -> None:
        """The worker has ended."""
        if not self._slots.closed:
            self._slots[self._at : self._end] = _NOTHING
        self._free.append(self._at)


class Journal:
    """Records what one process has in flight, and the quarantine that it shares with other processes."""

    def __init__(
        self, directory: Path, clock: Clock, tell: Callable[[str], None], end: Callable[[int], object] = os._exit
    ) -> None:
        """`tell`: receives a line about each process that died, and about the end of this one by `end`.

        Raises OSError.
        """
        self._directory, self._now, self._tell, self._end = directory, clock.now, tell, end
        self._made = _made(directory)
        self._path = directory / f"{os.getpid()}-{token_hex(4)}{_SUFFIX}"
        self._quarantine: Quarantine = {}
        self._lifted: list[tuple[str, int]] = []
        """What is to be taken out of the file of quarantined messages."""
        self._written_at = clock.now()
        self._known: bytes | None = None
        """The text of that file when it was last read or written: it seldom changes, and may be large."""
        unlocked = self._path.with_suffix(".new")
        self._file = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            # Not a sparse file: a disk that is full later would end the process at its first note.
            os.posix_fallocate(self._file, 0, _SIZE)
            unlocked.rename(self._path)  # others meet it only now: without its lock it would be that of a dead process
        except OSError:
            unlocked.unlink(missing_ok=True)
            os.close(self._file)
            raise
        self._names_end = _SIZE
        self._slots = mmap.mmap(self._file, _SIZE)
        """One per worker, all of the same size."""
        self._free = list(range(_SIZE - _SLOT.size, -1, -_SLOT.size))
        self._numbers: dict[str, int] = {}
        self._naming = threading.Lock()
        """Two names that are written at once would stand at one place of the file."""
        self.turns: Turns[Any] = Turns()
        """Of the quarantined messages that this process handles."""
        self._is_open = True
        ref = weakref.WeakMethod(self._forget)
        os.register_at_fork(after_in_child=lambda: (forget := ref()) and forget())
        self._look()

    def __repr__(self) -> str:
        return f"<Journal {self._path}>"

    # What this process has in flight.

    def note(self) -> Note | None:
        """A slot in which one worker records what it has in flight; None when all are taken."""
        return Note(self._slots, self._free.pop(), self._free, self._check) if self._free else None

    def _check(self) -> None:
        """End the process if a handler has closed its descriptors.

        It can reach no broker any more and would end soon, when what it has in flight is no longer recorded.
        """
        if self._is_open:
            try:
                os.get_blocking(self._file)  # the cheapest question there is
            except OSError:
                self._tell("a handler has closed the descriptors of this process, which ends as if it had died")
                self._end(1)

    def recorder(self, group: str, queue: MessageQueue) -> Callable[..., bytes]:
        """A function for the workers of this queue: `record(first, last, is_late=False)`. `is_late`: see `Span`.

        Threads may call it, for each run of messages: so it keeps the queue's number.
        """
        key, pack = _key(group, queue), _SLOT.pack
        number = self._number_of(key)

        def record(first: int, last: int, is_late: bool = False) -> bytes:
            nonlocal number
            if not number:  # the disk was full
                number = self._number_of(key)
            return pack(number | _LATE if is_late else number, first, last)

        return record

    def _number_of(self, key: str) -> int:
        with self._naming:
            number = self._numbers.get(key)
            if number is None:
                name = key.encode() + b"\n"
                try:
                    _write(self._file, name, self._names_end)
                except OSError:
                    return 0  # the disk is full: what this queue has in flight is not found
                self._names_end += len(name)
                number = self._numbers[key] = len(self._numbers) + 1
        return number

    def identify(self, group: str, queue: MessageQueue, offset: int, message_id: str) -> None:
        """Record the message id before a quarantined call: another broker may have another message at its offset."""
        self._number_of(json.dumps([_key(group, queue), offset, message_id]))  # a name that no slot has

    def close(self) -> None:
        """The process ends normally: remove its records."""
        if self._is_open:
            with contextlib.suppress(OSError):
                self._write_lifted()
            # The map stays: a thread that was left behind may still write.
            self._is_open = False
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            if self._made:
                self._leave_no_trace()

    def _leave_no_trace(self) -> None:
        """Remove the directories that this process created, if no other uses them and nothing is quarantined."""
        with contextlib.suppress(OSError):
            if not self._quarantine and not any(self._directory.glob(f"*{_SUFFIX}")):
                (self._directory / "quarantine.json").unlink(missing_ok=True)
            for path in reversed(self._made):
                path.rmdir()  # fails where anything else is kept

    def _forget(self) -> None:
        """Close the files; also in a forked child, which must not keep the lock of a parent that dies."""
        if self._is_open:
            self._is_open = False
            self._slots.close()
            os.close(self._file)

    # What others had.

    def quarantined(self, group: str, queue: MessageQueue, first_offset: int) -> dict[int, Quarantined]:
        """The quarantined messages of a queue from this offset on, by offset. Each must be lifted."""
        key = _key(group, queue)
        with contextlib.suppress(OSError):
            # Every time: this queue is perhaps that of a process that died a moment ago.
            self._look()
        # What lies below was finished by others.
        self._drop(key, [offset for offset in self._quarantine.get(key, ()) if offset < first_offset])
        return dict(self._quarantine.get(key, {}))

    def lift(self, group: str, queue: MessageQueue, offset: int) -> None:
        """Remove a message from quarantine: it is done or dead, and has not ended the process."""
        self._drop(_key(group, queue), [offset])

    def _drop(self, key: str, offsets: list[int]) -> None:
        if not offsets:
            return
        self._check()
        self._lifted += ((key, offset) for offset in offsets)
        _remove(self._quarantine, self._lifted[-len(offsets) :])
        if not self._quarantine or self._now() >= self._written_at + _WRITE_INTERVAL:
            with contextlib.suppress(OSError):
                self._write_lifted()

    def _write_lifted(self) -> None:
        if self._lifted:
            self._update([])

    def _look(self) -> None:
        """Take over the records of processes that have died."""
        self._update([path for path in self._directory.glob(f"*{_SUFFIX}") if path != self._path])

    def _update(self, others: Iterable[Path]) -> None:
        """Under a lock: read the quarantine, apply the changes, and write it.

        What the processes `others` had in flight is added if they died.
        """
        self._written_at = self._now()
        opened = os.open(self._directory / "quarantine.json", os.O_RDWR | os.O_CREAT, 0o600)
        with os.fdopen(opened, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = file.read()
            found = self._quarantine if text == self._known else _parsed(text.decode("utf-8", "replace"))
            is_changed, self._known, taken = bool(self._lifted), None, list[Path]()
            # Until all is written: what is in memory is not what the file says.
            _remove(found, self._lifted)
            for path in others:
                if (spans := _left_in(path)) is not None:
                    taken.append(path)
                    if spans:
                        self._tell(_text(spans))
                        found, is_changed = after_crash(found, spans, self._now()), True
            kept = still_quarantined(found, self._now())
            if is_changed or kept != found:
                text = _text_of(kept)
                # A handler in a thread may end the process at any moment: what is there is first overwritten, in one
                # step. What a death leaves behind the new text is not read.
                _write(opened, text, 0)
                os.ftruncate(opened, len(text))
            self._known, self._quarantine = text, kept
            self._lifted.clear()
            for path in taken:
                # Only now: a death in between must not lose what that process had in flight.
                path.unlink(missing_ok=True)


def _remove(quarantine: Quarantine, lifted: Iterable[tuple[str, int]]) -> None:
    for key, offset in lifted:
        found = quarantine.get(key)
        if found is not None:
            found.pop(offset, None)
            if not found:
                del quarantine[key]


def _text_of(quarantine: Quarantine) -> bytes:
    return json.dumps(
        {queue: {at: astuple(one) for at, one in found.items()} for queue, found in quarantine.items()}
    ).encode()


def _write(file: int, data: bytes, at: int) -> None:
    """Write all bytes. Raises OSError, also when the disk has room for only a part."""
    if os.pwrite(file, data, at) != len(data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _made(directory: Path) -> list[Path]:
    """Create a directory. Returns those that were created, outermost first."""
    missing = [path for path in (*reversed(directory.parents), directory) if not path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    return missing


def _key(group: str, queue: MessageQueue) -> str:
    return f"{group} {queue}"


def _left_in(path: Path) -> list[Span] | None:
    """What the process of this file had in flight when it died; None while it lives."""
    try:
        with path.open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return None
            data = file.read()
    except FileNotFoundError:
        return None
    names = data[_SIZE:].decode("utf-8", "replace").split("\n")
    ids: dict[tuple[str, int], str] = {}
    for name in names[:-1]:
        if name.startswith("["):
            with contextlib.suppress(ValueError, TypeError):  # the disk was full
                queue, offset, message_id = json.loads(name)
                ids[queue, offset] = message_id
    slots = _SLOT.iter_unpack(data[:_SIZE]) if len(data) >= _SIZE else ()
    found = [
        (names[(number & ~_LATE) - 1], first, last, bool(number & _LATE))
        for number, first, last in slots
        if 0 < number & ~_LATE < len(names)
    ]
    return [Span(*each, ids.get(each[:2], "")) for each in found]


def _parsed(text: str) -> Quarantine:
    """The quarantine in a file; empty when a death left the file incomplete."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text or "{}")
        return {
            str(queue): {
                int(at): Quarantined(int(one[0]), int(one[1]), float(one[2]), bool(one[3]), *map(str, one[4:5]))
                for at, one in offsets.items()  # files of before have no ids
            }
            for queue, offsets in found.items()
        }
    except (ValueError, TypeError, AttributeError, LookupError):
        return {}


def _text(spans: list[Span]) -> str:
    # Once each: several workers may take messages of one run.
    ranges = dict.fromkeys(span[:3] for span in spans)
    told = [f"{queue} #{first}" + (f" to #{last}" if last > first else "") for queue, first, last in ranges]
    more = f" and {len(told) - 3} more" if len(told) > 3 else ""
    shown = ", ".join(told[:3]) + more
    return f"a process died with messages in flight ({shown}): each handler is called for one of them at a time"
