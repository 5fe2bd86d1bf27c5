"""Makes entries of a consume queue again from the log, while the broker runs.

A page of a queue that the disk has lost hides messages that are whole. The records around it say where they are: the
log is read between the last entry before the page and the first one behind it that agree with their records, and the
queues follow it there once more.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketapp.broker.store.commit_log import CommitLog
from rocketapp.broker.store.consume_queue import ConsumeQueue
from rocketapp.broker.store.consume_queues import ConsumeQueues, agreed
from rocketapp.broker.store.recovery import records_of

_MOST_HOPELESS = 65_536
_MOST_READ_BYTES = 67_108_864
"""Most of the log that is read for an entry that is not empty."""
_SLICE = 256
"""Entries or records that are looked at in one step."""


class Repair:
    """The repairs of one store. An entry whose record is not found is looked for once."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues) -> None:
        self._log, self._queues = log, queues
        self._hopeless: set[tuple[ConsumeQueue, int]] = set()
        self.mended: int = 0
        """Entries that were made again."""

    def wanted(self, queue: ConsumeQueue, offsets: list[int]) -> int | None:
        """The first of these bad entries that was not looked for yet."""
        return next((each for each in offsets if (queue, each) not in self._hopeless), None)

    def mend(self, queue: ConsumeQueue, offset: int) -> Iterator[None]:
        """Make the bad entry at this offset again, and those around it, in steps that take some milliseconds."""
        first = last = offset
        start, end = self._log.min_position, self._log.end
        has_page = queue.entry(offset)[1] > 0
        while first > queue.min_offset:
            if (before := agreed(queue, self._log, first - 1)) is not None:
                start = before.physical + before.size
                break
            first -= 1
            if first % _SLICE == 0:
                yield
        while last + 1 < queue.max_offset:
            if (behind := agreed(queue, self._log, last + 1)) is not None:
                end = behind.physical
                break
            last += 1
            if last % _SLICE == 0:
                yield
        if has_page:  # rather its record is bad
            start = max(start, end - _MOST_READ_BYTES)
        missing = set(range(first, last + 1))
        for number, stored in enumerate(records_of(self._log, start, end)):
            if stored.physical >= end or not missing:
                break
            is_ours = stored.is_queued and (stored.topic, stored.queue_id) == (queue.topic, queue.queue_id)
            if is_ours and stored.queue_offset in missing and self._queues.mend(queue, stored):
                missing.discard(stored.queue_offset)
                self.mended += 1
            if number % _SLICE == 0:
                yield
        if len(self._hopeless) + len(missing) > _MOST_HOPELESS:
            self._hopeless.clear()
        self._hopeless.update((queue, each) for each in missing)
