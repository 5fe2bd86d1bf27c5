"""Records of the log get their entries in the consume queues again.

Each record says its own number. As long as that is the next one of its queue all is well. If not, either
the number is damaged, or records before it are missing, or the topic was deleted and made again:
the record that follows in the same queue decides which, so that one flipped bit costs one message.
"""

from __future__ import annotations

from rocketapp.broker.store.consume_queue import ConsumeQueue, OpenFiles
from rocketapp.broker.store.stored import Stored, TagsCodes
from rocketapp.model.event import Observe, RecordDamaged

Queues = dict[tuple[str, int], ConsumeQueue]

_MOST_MISSING = 1_000_000
"""A number that is so far ahead of its queue is damage, whatever follows."""
_MOST_UNWRITTEN = 16_384


class Dispatch:
    """Takes records in the order of the log; `finish` settles what is still open."""

    def __init__(self, queues: Queues, opened: OpenFiles, observe: Observe) -> None:
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
        """Nothing follows: a doubtful number is believed if it can be."""
        for queue, stored in self._doubtful.items():
            self._settle(queue, stored, stored.queue_offset + 1)
        self._doubtful.clear()

    def _settle(self, queue: ConsumeQueue, doubtful: Stored, following: int) -> None:
        """Decide on a record by the number of the one that follows in its queue."""
        offset, expected = doubtful.queue_offset, queue.max_offset
        if following == expected + 1:
            self._put(queue, doubtful)  # at its place; readers will see that it is damaged
        elif following == offset + 1 and offset == 0:
            queue.cut(0)
            self._put(queue, doubtful)
        elif following == offset + 1 and expected == 0:
            queue.begin_at(offset)
            self._put(queue, doubtful)
        elif following == offset + 1 and expected < offset <= expected + _MOST_MISSING:
            # Entries of what is missing lead to the next that is there: readers see that it is another one.
            while queue.max_offset <= offset:
                self._put(queue, doubtful)
        else:
            self._observe(RecordDamaged(doubtful.topic, doubtful.queue_id, offset, doubtful.physical))

    def _put(self, queue: ConsumeQueue, stored: Stored) -> None:
        tags_code = self._tags_codes.of(stored.topic, stored.queue_id, stored.raw_properties, stored.stored_ms)
        queue.put(stored.physical, stored.size, tags_code)
        if queue.unwritten >= _MOST_UNWRITTEN:
            queue.write()
