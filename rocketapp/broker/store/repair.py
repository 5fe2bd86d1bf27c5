"""Makes entries of a consume queue again from the log, while the broker runs.

A page of a queue that the disk has lost hides messages that are whole. The records around it say where they are: the
log is read between the last entry before the page and the first one behind it that agree with their records.
"""

from __future__ import annotations

from collections.abc import Sequence

from rocketapp.broker.store.commit_log import CommitLog
from rocketapp.broker.store.consume_queue import ConsumeQueue
from rocketapp.broker.store.recovery import Scan
from rocketapp.broker.store.stored import HEAD_BYTES, TagsCodes, announced_size, parse
from rocketapp.model.event import unobserved

_MOST_HOPELESS = 65_536
_MOST_READ_BYTES = 67_108_864
"""Most of the log that is read for an entry that is not empty."""


class Repair:
    """The repairs of one store. An entry whose record is not found is looked for once."""

    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._tags_codes = TagsCodes()
        self._hopeless: set[tuple[str, int, int]] = set()

    def mend(self, queue: ConsumeQueue, offsets: Sequence[int]) -> bool:
        """Make the entries at these offsets again, and those around them; False if none has changed."""
        has_changed = False
        done = -1
        for offset in offsets:
            is_known = offset <= done or (queue.topic, queue.queue_id, offset) in self._hopeless
            if not is_known and self._place(queue, offset) is None:
                first, done, start, end = self._around(queue, offset)
                has_changed |= self._make_again(queue, set(range(first, done + 1)), start, end)
        return has_changed

    def _around(self, queue: ConsumeQueue, offset: int) -> tuple[int, int, int, int]:
        """The first and the last bad entry around this one, and the part of the log where their records are."""
        first = last = offset
        start, end = self._log.min_position, self._log.end
        while first > queue.min_offset:
            place = self._place(queue, first - 1)
            if place is not None:
                start = place[1]
                break
            first -= 1
        while last + 1 < queue.max_offset:
            place = self._place(queue, last + 1)
            if place is not None:
                end = place[0]
                break
            last += 1
        if queue.entry(offset)[1] > 0:  # the page is there, and rather its record is bad
            start = max(start, end - _MOST_READ_BYTES)
        return first, last, start, end

    def _make_again(self, queue: ConsumeQueue, missing: set[int], start: int, end: int) -> bool:
        has_changed = False
        for stored in Scan(self._log, end, unobserved, ends_at_damage=False, limit=end).records(start):
            if stored.physical >= end or not missing:
                break
            is_ours = stored.is_queued and (stored.topic, stored.queue_id) == (queue.topic, queue.queue_id)
            if not is_ours or stored.queue_offset not in missing:
                continue
            code = self._tags_codes.of(stored.topic, stored.queue_id, stored.raw_properties, stored.stored_ms)
            if queue.entry(stored.queue_offset) != (stored.physical, stored.size, code):
                queue.replace(stored.queue_offset, stored.physical, stored.size, code)
                missing.discard(stored.queue_offset)
                has_changed = True
        if len(self._hopeless) + len(missing) > _MOST_HOPELESS:
            self._hopeless.clear()
        self._hopeless.update((queue.topic, queue.queue_id, each) for each in missing)
        return has_changed

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
