"""Which finished offsets the broker has not confirmed yet.

An entry belongs to one assignment, named by its epoch: what an earlier assignment of the
same queue still reports changes nothing and is never sent.
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
        """A new assignment; `confirmed` is the offset that the broker answered with."""
        entry = self._entries.get(queue)
        if entry is None or entry.epoch <= epoch:
            self._entries[queue] = _Entry(epoch, confirmed)

    def end(self, queue: MessageQueue, epoch: int) -> None:
        """The assignment is over; a later one of the same queue stays."""
        if self.is_current(queue, epoch):
            del self._entries[queue]

    def is_current(self, queue: MessageQueue, epoch: int) -> bool:
        """Whether this assignment may still commit."""
        entry = self._entries.get(queue)
        return entry is not None and entry.epoch == epoch

    def confirmed(self, queue: MessageQueue) -> int | None:
        """What the broker is known to hold; None when it is not known."""
        entry = self._entries.get(queue)
        return None if entry is None else entry.confirmed

    def confirm(self, queue: MessageQueue, epoch: int, offset: int) -> None:
        """The broker said that it stored this offset."""
        if self.is_current(queue, epoch):
            self._entries[queue].confirmed = offset

    def is_unsent(self, queue: MessageQueue, epoch: int, offset: int) -> bool:
        """Whether this offset is news for the broker, from whoever may still tell it."""
        return self.is_current(queue, epoch) and self._entries[queue].confirmed != offset
