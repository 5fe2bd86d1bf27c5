"""The messages of a retry queue whose topics are not paused: only they count against its limits.

Otherwise what is held of a paused topic would fill the queue, and stop the retries of the group's other topics.
Held messages still count against the memory budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rocketapp.state.flow_control import QueueLimits
from rocketapp.state.pauses import Pauses
from rocketapp.state.process_queue import ProcessQueue


@dataclass(frozen=True, slots=True)
class _Counted:
    """What a queue holds of topics that are not paused, as `QueueLimits` compares it."""

    count: int
    size: int
    span: int
    commit_offset: int

    def __len__(self) -> int:
        return self.count


class Unpaused:
    """Compares one retry queue with its limits. It looks at all messages only when that may change the answer."""

    def __init__(self, queue: ProcessQueue[Any], pauses: Pauses) -> None:
        self._queue, self._pauses = queue, pauses
        self._looked_with: tuple[int, QueueLimits] | None = None
        """At the last look: how often the pauses had changed, and the limits."""
        self._free_to = 0
        """Until the queue reaches this offset, no limit of messages or span is reached."""

    def __repr__(self) -> str:
        return f"<Unpaused {self._queue!r}>"

    def reached(self, limits: QueueLimits, share: float) -> bool:
        """Whether the messages that are not held reach that share of a limit."""
        queue, now = self._queue, (self._pauses.changes, limits)
        if not limits.reached(queue, share):
            return False
        is_known = self._looked_with == now and queue.end_offset < self._free_to
        if is_known and share == 1.0 and queue.size < limits.max_bytes:
            return False
        counted = self._count()
        self._looked_with = now
        self._free_to = queue.end_offset + limits.max_messages - counted.count
        if limits.max_span is not None:
            self._free_to = min(self._free_to, counted.commit_offset + limits.max_span)
        return limits.reached(counted, share)

    def reason(self, limits: QueueLimits) -> str | None:
        """The limit that stopped the queue, in words; None when none did."""
        return limits.reason(self._count())

    def held(self) -> str | None:
        """What is held, and why; None when nothing is."""
        topics = [message.topic for message in self._queue.unfinished() if self._pauses.is_paused(message.topic)]
        if not topics:
            return None
        count = f"{len(topics)} message{' is' if len(topics) == 1 else 's are'}"
        return f"{count} held: {self._pauses.reason_of_all(dict.fromkeys(topics))}"

    def _count(self) -> _Counted:
        queue, is_paused = self._queue, self._pauses.is_paused
        offsets = [message.offset for message in queue.unfinished() if not is_paused(message.topic)]
        lowest = offsets[0] if offsets else queue.end_offset
        span = queue.commit_offset + queue.span - lowest if offsets else 0
        return _Counted(len(offsets), queue.size, span, lowest)
