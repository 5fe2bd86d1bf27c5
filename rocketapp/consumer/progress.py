"""When messages of each queue were finished last, to the second; looked up, so that no message pays for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rocketapp.consumer.group.owned import Owned
from rocketapp.model.message_queue import MessageQueue


class Progress:
    """The queues that one member owns."""

    def __init__(self, owned: Mapping[MessageQueue, Owned], now: Callable[[], float]) -> None:
        self._owned, self._now = owned, now
        self._seen: dict[MessageQueue, tuple[int, int, float]] = {}
        """By queue: end, unfinished messages, and since when they are the same."""

    def __repr__(self) -> str:
        return f"<Progress of {len(self._seen)} queues>"

    def look(self) -> None:
        """Once a second: note which queues have finished messages since the last look."""
        now, before = self._now(), self._seen
        seen: dict[MessageQueue, tuple[int, int, float]] = {}
        for queue, owned in self._owned.items():
            process_queue = owned.process_queue
            if process_queue is not None:
                end, unfinished = process_queue.end_offset, len(process_queue)
                known = before.get(queue)
                if known is None or known[0] != end or known[1] != unfinished:
                    known = end, unfinished, now
                seen[queue] = known
        self._seen = seen

    def last(self, queue: MessageQueue) -> float:
        """The time of its last progress; now, when it was not looked at yet."""
        known = self._seen.get(queue)
        return self._now() if known is None else known[2]
