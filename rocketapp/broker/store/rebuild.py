"""Rebuilds the entries of the consume queues from the records of the log.

Each record contains its queue offset. Normally that is the next one of its queue. If it is not, the
offset is damaged, or records before it are missing, or the topic was deleted and created again. The
next record of the same queue decides which, so that one flipped bit costs one message.
"""

from __future__ import annotations

from rocketapp.broker.store.consume_queue import ConsumeQueue, QueueFiles
from rocketapp.broker.store.stored import Stored, TagsCodes
from rocketapp.model.event import Observe, RecordDamaged

Queues = dict[tuple[str, int], ConsumeQueue]

_MOST_MISSING = 1_000_000
"""An offset that is farther ahead of its queue than this is damaged."""
_MOST_UNWRITTEN = 16_384


class QueueRebuild:
    """Called with each record in the order of the log; `finish` decides on doubtful last records."""

    def __init__(self, queues: Queues, opened: QueueFiles, observe: Observe) -> None:
        self._queues, self._opened, self._observe = queues, opened, observe
        self._tags_codes = TagsCodes()
        self._doubtful: dict[ConsumeQueue, Stored] = {}

    def __call__(self, stored: Stored) -> None:
        if not stored.is_queued:
            return
        key = stored.topic, stored.queue_id
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = ConsumeQueue(*key, self._opened)
        before = self._doubtful.pop(queue, None)
        if before is not None:
            self._settle(queue, before, stored.queue_offset)
        if stored.queue_offset == queue.max_offset:
            self._put(queue, stored)
        else:
            self._doubtful[queue] = stored

    def finish(self) -> None:
        """The log has ended. Accept a doubtful offset if it is possible."""
        for queue, stored in self._doubtful.items():
            self._settle(queue, stored, stored.queue_offset + 1)
        self._doubtful.clear()

    def _settle(self, queue: ConsumeQueue, doubtful: Stored, following: int) -> None:
        """Decide on a doubtful record by the offset of the next record of its queue."""
        offset, expected = doubtful.queue_offset, queue.max_offset
        if following == expected + 1:
            self._put(queue, doubtful)  # in its place; readers notice that it is damaged
        elif following == offset + 1 and offset == 0:
            queue.cut(0)
            self._put(queue, doubtful)
        elif following == offset + 1 and expected == 0:
            queue.begin_at(offset)
            self._put(queue, doubtful)
        elif following == offset + 1 and expected < offset <= expected + _MOST_MISSING:
            # Entries of missing records point to the next existing one. Readers notice the different offset.
            while queue.max_offset <= offset:
                self._put(queue, doubtful)
        else:
            self._observe(RecordDamaged(doubtful.topic, doubtful.queue_id, offset, doubtful.physical))

    def _put(self, queue: ConsumeQueue, stored: Stored) -> None:
        tags_code = self._tags_codes.of(stored.topic, stored.queue_id, stored.raw_properties, stored.stored_ms)
        queue.put(stored.physical, stored.size, tags_code)
        if queue.unwritten >= _MOST_UNWRITTEN:
            queue.write()
