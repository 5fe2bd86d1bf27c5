"""Items of a popped queue that may still be started: what another member may have by now is passed over."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from operator import length_hint
from typing import Any

from rocketapp.state.pop_queue import PopQueue
from rocketapp.wire.record import Message

TooLate = Callable[[Sequence[Message]], None]
"""Takes messages whose time was over before they were started; called on the loop."""


class Fresh(Iterator[Any]):
    """Messages, or lists of them, that are hidden from others as they are drawn; threads may draw."""

    __slots__ = ("_items", "_loop", "_now", "_queue", "_too_late")

    def __init__(self, items: Iterator[Any], queue: PopQueue[Message], too_late: TooLate) -> None:
        self._items, self._queue, self._too_late = items, queue, too_late
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time

    def __next__(self) -> Any:
        is_over, now = self._queue.is_over, self._now()
        for item in self._items:
            if isinstance(item, Message):
                if not is_over(item, now):
                    return item
                self._tell([item])
                continue
            late = [message for message in item if is_over(message, now)]
            if not late:
                return item
            self._tell(late)
            if rest := [message for message in item if message not in late]:
                return rest
        raise StopIteration

    def __length_hint__(self) -> int:
        return length_hint(self._items)

    def _tell(self, messages: Sequence[Message]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._too_late, messages)
