"""Which finished offsets the broker has not confirmed yet.

An entry belongs to one assignment, identified by its epoch. Reports of an earlier assignment of the
same queue are ignored and never sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.model.message_queue import MessageQueue


@dataclass(slots=True)
class _Entry:
    epoch: int
    confirmed: int | None


class OffsetTable:
    """Per assigned queue: the offset that the broker is known to hold for our group."""

    def __init__(self) -> None:
        self._entries: dict[MessageQueue, _Entry] = {}

    def begin(self, queue: MessageQueue, epoch: int, confirmed: int | None = None) -> None:
        """Begin a new assignment. `confirmed` is the offset that the broker answered with."""
        entry = self._entries.get(queue)
        if entry is None or entry.epoch <= epoch:
            self._entries[queue] = _Entry(epoch, confirmed)

    def end(self, queue: MessageQueue, epoch: int) -> None:
        """End this assignment. A later assignment of the same queue is not affected."""
        if self.is_current(queue, epoch):
            del self._entries[queue]

    def is_current(self, queue: MessageQueue, epoch: int) -> bool:
        """Whether this assignment may still commit."""
        entry = self._entries.get(queue)
        return entry is not None and entry.epoch == epoch

    def confirmed(self, queue: MessageQueue) -> int | None:
        """The offset that the broker is known to hold; None when it is not known."""
        entry = self._entries.get(queue)
        return None if entry is None else entry.confirmed

    def confirm(self, queue: MessageQueue, epoch: int, offset: int) -> None:
        """The broker confirmed that it stored this offset."""
        if self.is_current(queue, epoch):
            self._entries[queue].confirmed = offset

    def is_unsent(self, queue: MessageQueue, epoch: int, offset: int) -> bool:
        """Whether this assignment is the current one and the broker has not confirmed this offset."""
        return self.is_current(queue, epoch) and self._entries[queue].confirmed != offset
