"""Makes entries of a consume queue again from the log, while the broker runs.

A page of a queue that the disk has lost hides messages that are whole. The records around it say where they are: the
log is read between the last entry before the page and the first one behind it that agree with their records, and the
queues follow it there once more.
"""

from __future__ import annotations

from collections.abc import Iterator

from rocketapp.broker.store.commit_log import CommitLog
from rocketapp.broker.store.consume_queue import ConsumeQueue
from rocketapp.broker.store.consume_queues import ConsumeQueues
from rocketapp.broker.store.recovery import Scan
from rocketapp.broker.store.stored import HEAD_BYTES, announced_size, parse
from rocketapp.model.event import unobserved

_MOST_HOPELESS = 65_536
_MOST_READ_BYTES = 67_108_864
"""Most of the log that is read for an entry that is not empty."""
_SLICE = 256
"""Entries or records that are looked at in one step."""


class Repair:
    """The repairs of one store. An entry whose record is not found is looked for once."""

    def __init__(self, log: CommitLog, queues: ConsumeQueues) -> None:
        self._log, self._queues = log, queues
        self._hopeless: set[tuple[str, int, int]] = set()
        self.mended: int = 0
        """Entries that were made again."""

    def wanted(self, queue: ConsumeQueue, offsets: list[int]) -> int | None:
        """The first of these bad entries that was not looked for yet."""
        hopeless = self._hopeless
        return next((each for each in offsets if (queue.topic, queue.queue_id, each) not in hopeless), None)

    def mend(self, queue: ConsumeQueue, offset: int) -> Iterator[None]:
        """Make the bad entry at this offset again, and those around it, in steps that take some milliseconds."""
        first = last = offset
        start, end = self._log.min_position, self._log.end
        has_page = queue.entry(offset)[1] > 0
        while first > queue.min_offset:
            if (place := self._place(queue, first - 1)) is not None:
                start = place[1]
                break
            first -= 1
            if first % _SLICE == 0:
                yield
        while last + 1 < queue.max_offset:
            if (place := self._place(queue, last + 1)) is not None:
                end = place[0]
                break
            last += 1
            if last % _SLICE == 0:
                yield
        if has_page:  # rather its record is bad
            start = max(start, end - _MOST_READ_BYTES)
        missing = set(range(first, last + 1))
        for number, stored in enumerate(
            Scan(self._log, end, unobserved, ends_at_damage=False, limit=end).records(start)
        ):
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
        self._hopeless.update((queue.topic, queue.queue_id, each) for each in missing)

    def _place(self, queue: ConsumeQueue, offset: int) -> tuple[int, int] | None:
        """Where the record of an entry begins and ends; None if they do not agree."""
        log = self._log
        physical, size, _ = queue.entry(offset)
        if not size > 0 or announced_size(log.read(physical, HEAD_BYTES), 0, physical) != size:
            return None
        stored = parse(log.read(physical, size), 0, physical, check_body=False)
        if stored is None or (stored.topic, stored.queue_id) != (queue.topic, queue.queue_id):
            return None
        return (physical, physical + size) if stored.queue_offset == offset else None
