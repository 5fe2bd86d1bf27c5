"""Rebuilds entries of a consume queue from the log while the broker runs.

A page of a queue that the disk has lost hides messages that are intact. The records around it tell where they are: the
log is read between the last good entry before the page and the first one behind it, and the queues follow it again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator

from rocketapp.broker.store.commit_log import CommitLog
from rocketapp.broker.store.consume_queue import ConsumeQueue
from rocketapp.broker.store.consume_queues import ConsumeQueues, agreed
from rocketapp.broker.store.recovery import records_of
from rocketapp.broker.store.stored import Stored
from rocketapp.errors import StoreError

_MOST_NOT_FOUND = 65_536
_MOST_READ_BYTES = 67_108_864
"""Most of the log that is read for an entry that is not empty."""
_SLICE = 256
"""Entries or records that are looked at in one step."""


class QueueRepair:
    """The repairs of one store. An entry whose record is not found is searched only once."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues) -> None:
        self._log, self._queues = log, queues
        self._not_found: set[tuple[ConsumeQueue, int]] = set()
        self._under_way: set[ConsumeQueue] = set()
        self.later: Callable[[Generator[None]], object] | None = None
        """Takes the steps of a repair in turns of the loop; without it a read takes them all."""
        self.mended: int = 0
        """Entries that were made again."""

    def rebuild_entries(self, queue: ConsumeQueue, offsets: list[int]) -> bool:
        """Rebuild the first of these bad entries that was not searched yet. Returns whether there was one.

        Raises StoreError while a repair goes on beside the loop.
        """
        offset = next((each for each in offsets if (queue, each) not in self._not_found), None)
        if offset is None:
            return False
        if queue not in self._under_way:
            self._under_way.add(queue)
            steps = self._whole(queue, offset)
            if self.later is None:
                deque(steps, maxlen=0)
                return True
            self.later(steps)
        raise StoreError(f"queue {queue.queue_id} of topic {queue.topic} is being made again from the log")

    def _whole(self, queue: ConsumeQueue, offset: int) -> Generator[None]:
        try:
            for _ in self._steps(queue, offset):
                yield
                if not self._queues.has(queue):  # a new topic of that name has the same files
                    return
        finally:
            self._under_way.discard(queue)

    def _steps(self, queue: ConsumeQueue, offset: int) -> Iterator[None]:
        """Rebuild the bad entry at this offset, and those around it, in steps of some milliseconds."""
        start, end = self._log.min_position, self._log.end
        first, stop = queue.min_offset, queue.max_offset
        has_page = queue.entry(offset)[1] > 0
        if before := (yield from self._first_agreed(queue, range(offset - 1, first - 1, -1))):
            first, start = before.queue_offset + 1, before.physical + before.size
        if behind := (yield from self._first_agreed(queue, range(offset + 1, stop))):
            stop, end = behind.queue_offset, behind.physical
        if has_page:  # rather its record is bad
            start = max(start, end - _MOST_READ_BYTES)
        missing = set(range(first, stop))
        for number, stored in enumerate(records_of(self._log, start, end)):
            if not missing:
                break
            is_ours = stored.is_queued and (stored.topic, stored.queue_id) == (queue.topic, queue.queue_id)
            if is_ours and stored.queue_offset in missing and self._queues.rebuild_entry(queue, stored):
                missing.discard(stored.queue_offset)
                self.mended += 1
            if number % _SLICE == 0:
                yield
        if len(self._not_found) + len(missing) > _MOST_NOT_FOUND:
            self._not_found.clear()
        self._not_found.update((queue, each) for each in missing)

    def _first_agreed(self, queue: ConsumeQueue, offsets: range) -> Generator[None, None, Stored | None]:
        """The first record that agrees with its entry."""
        for offset in offsets:
            if (found := agreed(queue, self._log, offset)) is not None:
                return found
            if offset % _SLICE == 0:
                yield
        return None
