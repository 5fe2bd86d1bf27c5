"""Pulled messages on their way to one handler.

All workers of a handler draw from the one iterator of a `Work`, so that handing over a
message costs no queue operation, no tuple and no future. A list's iterator is advanced in
one step under the interpreter's lock, so threads may share it too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import length_hint
from typing import Any

from rocketapp.consumer.stats import HandlerStats
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.record import Message


class Work:
    """Items of one queue for one handler: messages, or lists of messages for a batch handler."""

    __slots__ = ("_count", "_last", "finished", "items", "process_queue", "told")

    def __init__(self, process_queue: ProcessQueue[Message], batch: list[Any]) -> None:
        self.process_queue = process_queue
        self.items: Iterator[Any] = iter(batch)
        """Shared by all workers: whoever takes an item has started it. Nothing else keeps the items alive."""
        self._count, self._last = len(batch), _last_offset(batch[-1])
        self.finished: list[Any] = []
        """What threads are done with and the loop has not collected."""
        self.told = False
        """The loop was told that there is something to collect."""

    def __repr__(self) -> str:
        return f"<Work {self.process_queue.message_queue}: {self.left} of {self._count} not started>"

    @property
    def left(self) -> int:
        """How many items nobody has started."""
        return length_hint(self.items)

    @property
    def last_offset(self) -> int:
        """The highest offset of all items."""
        return self._last

    def withdraw(self) -> tuple[list[Any], int]:
        """Take away what nobody has started: those items, and an offset that nothing started lies above (-1: none)."""
        left = list(self.items)
        if not left:
            return left, self._last
        return left, (_first_offset(left[0]) - 1 if len(left) < self._count else -1)


def _first_offset(item: Message | Sequence[Message]) -> int:
    return item.offset if isinstance(item, Message) else item[0].offset


def _last_offset(item: Message | Sequence[Message]) -> int:
    return item.offset if isinstance(item, Message) else item[-1].offset


Settle = Callable[[HandlerStats, ProcessQueue[Message], Any, object, bool], None]
"""(stats, process queue, item, what came of it, whether that was raised): the way that is not fast."""
