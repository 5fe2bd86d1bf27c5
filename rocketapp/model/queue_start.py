"""Where consumption of a queue may begin, for those who keep offsets elsewhere than at the broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rocketapp.model.message_queue import MessageQueue


@dataclass(frozen=True, slots=True)
class QueueStart:
    """What brokers know of a queue as a session of it begins."""

    queue: MessageQueue
    offset: int
    """The committed offset, or what the subscription's `start` says: where it begins without a plugin."""
    min_offset: int
    """The lowest offset that the broker still has."""
    max_offset: int
    """The offset behind the last message."""


Begin = Callable[[QueueStart], Awaitable[int | None]]
"""Where a session begins; None: at `offset`. The answer is committed to the broker before the first pull. What it
raises is the reason of the queue to stand still; it is asked again after a second."""
