"""One queue of one topic on one broker: what is assigned, locked, pulled and committed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
