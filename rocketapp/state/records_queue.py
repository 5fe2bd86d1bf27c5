"""A process queue of record blocks: messages that were pulled together and are finished together.

It counts messages like any process queue, and its commit offset is the lowest offset that a restart must read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import PulledRecords
from rocketapp.state.process_queue import ProcessQueue

P = TypeVar("P", bound=PulledRecords)


class RecordsQueue(ProcessQueue[P]):
    """The unfinished records of one queue, in offset order."""

    __slots__ = ("_count",)
    received: int
    size: int

    def __init__(self, message_queue: MessageQueue, first_offset: int, epoch: int = 0) -> None:
        super().__init__(message_queue, first_offset, epoch)
        self._count = 0

    def __len__(self) -> int:
        """How many messages are unfinished."""
        return self._count

    def put(self, messages: Sequence[P]) -> Sequence[P]:
        """Accept pulled records and return what is new of them: what was put before is cut off."""
        if self.closed:
            return ()
        taken = []
        for records in messages:
            new = records.since(self._end)
            if new is not None:
                self._unfinished[new.offset] = new
                self._end, self._highest = new.end, new.end - 1
                self.size += new.size
                self._count += len(new)
                self.received += len(new)
                taken.append(new)
        return taken

    def finish_all(self, messages: Iterable[P]) -> None:
        """Forget records of which every message is handled. A part of those that were put together finishes nothing."""
        for records in messages:
            held = self._unfinished.get(records.offset)
            if held is not None and held.end == records.end:
                self._forget(self._unfinished.pop(records.offset))
        if self._watchers:
            self._tell()

    def withdraw(self, offset: int) -> None:
        """Remove all records that begin at `offset` or above. The queue's next owner pulls them again."""
        while self._unfinished and next(reversed(self._unfinished)) >= offset:
            records = self._unfinished.popitem()[1]
            self._forget(records)
            self.received -= len(records)
        last = next(reversed(self._unfinished.values()), None)
        self._end = min(self._end, offset if last is None else max(offset, last.end))
        if self._watchers:
            self._tell()

    def _forget(self, records: P) -> None:
        self.size -= records.size
        self._count -= len(records)
