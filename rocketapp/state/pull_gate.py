"""May this queue pull now, or why not.

The limits are RocketMQ's: unfinished messages, their bytes, the span of their offsets
(not for orderly topics), and the bytes of all queues together. A gate that closed opens
again only when a good part has been finished, so that it does not flutter.
"""

from __future__ import annotations

from typing import Any

from rocketapp.state.cache_budget import CacheBudget
from rocketapp.state.process_queue import ProcessQueue

_REOPEN = 0.75
"""The share of a limit below which a closed gate opens again."""


class PullGate:
    """The limits of every queue of one group."""

    def __init__(self, *, max_messages: int, max_bytes: int, max_span: int, budget: CacheBudget) -> None:
        self._max_messages, self._max_bytes, self._max_span = max_messages, max_bytes, max_span
        self._budget = budget

    def closed_by(self, queue: ProcessQueue[Any], *, orderly: bool, was_closed: bool = False) -> str | None:
        """The limit that forbids a pull, in words; None when the queue may pull.

        `was_closed`: the gate is closed at the moment, so it opens only below a share of its limits.
        """
        share = _REOPEN if was_closed else 1.0
        count = len(queue)
        if count and count >= self._max_messages * share:
            return f"flow control: {count} unfinished messages, limit queue_max_messages {self._max_messages}"
        if queue.size and queue.size >= self._max_bytes * share:
            return f"flow control: {queue.size} unfinished bytes, limit queue_max_bytes {self._max_bytes}"
        if not orderly and count and queue.span >= self._max_span * share:
            return (
                f"flow control: {queue.span} offsets were pulled beyond the lowest unfinished message, "
                f"#{queue.commit_offset}; limit queue_max_span {self._max_span}"
            )
        if self._budget.full:
            return f"flow control: all queues together hold {self._budget.used()} bytes, limit cache_max_bytes"
        return None
