"""A queue of a topic on a broker, and where a session of it begins."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class MessageQueue(NamedTuple):
    """Ordered by topic, broker name and queue id, as every member of a group must order them."""

    topic: str
    broker_name: str
    queue_id: int
    """-1 stands for all queues of the broker, when it hands out their messages one by one."""

    def __str__(self) -> str:
        return f"{self.topic}@{self.broker_name}:{'all' if self.queue_id < 0 else self.queue_id}"


QueueSelector = Callable[[Sequence[MessageQueue]], MessageQueue]
"""Chooses one of the queues of a topic that can be published to, which are sorted by broker and number."""


RecordAt = Callable[[int], Awaitable[tuple[int, int, str] | None]]
"""The record at this offset, or the next one, whatever the group's filter says: its offset, when it was stored in
milliseconds since 1970, and its message id. None where there is none."""


@dataclass(frozen=True, slots=True)
class QueueStart:
    """The offsets of a queue when a session begins."""

    queue: MessageQueue
    offset: int
    """The committed offset, or what the subscription's `start` says: where it begins without a plugin."""
    min_offset: int
    """The lowest offset that the broker still has."""
    max_offset: int
    """The offset behind the last message."""
    record_at: RecordAt
    """By a record that it has read a plugin knows the queue again: one of the same name may have taken its place."""


Begin = Callable[[QueueStart], Awaitable[int | None]]
"""Where a session begins; None: at `offset`. The answer is committed to the broker before the first pull. What it
raises is the reason of the queue to stand still; it is asked again after a second."""
