"""Which finished offsets the broker has not confirmed yet.

An entry belongs to one session of an assignment, identified by its epoch. Reports of an earlier session of the
same queue are ignored and never sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from rocketapp.model.message_queue import MessageQueue


@dataclass(slots=True)
class _Entry:
    epoch: int
    confirmed: int | None
    sent: int
    floor: int = -1


class OffsetTable:
    """Per queue: the offset that the broker is known to hold for our group, and the highest that we sent."""

    def __init__(self) -> None:
        self._entries: dict[MessageQueue, _Entry] = {}

    def begin(self, queue: MessageQueue, epoch: int, confirmed: int | None = None) -> None:
        """Begin a new session. `confirmed` is the offset that the broker answered with."""
        entry = self._entries.get(queue)
        if entry is None or entry.epoch <= epoch:
            self._entries[queue] = _Entry(epoch, confirmed, -1 if confirmed is None else confirmed)

    def end(self, queue: MessageQueue, epoch: int) -> None:
        """End this session. A later session of the same queue is not affected."""
        if self.is_current(queue, epoch):
            del self._entries[queue]

    def is_current(self, queue: MessageQueue, epoch: int) -> bool:
        """Whether this session may still commit."""
        entry = self._entries.get(queue)
        return entry is not None and entry.epoch == epoch

    def confirmed(self, queue: MessageQueue) -> int | None:
        """The offset that the broker is known to hold; None when it is not known."""
        entry = self._entries.get(queue)
        return None if entry is None else entry.confirmed

    def sent(self, queue: MessageQueue) -> int:
        """The highest offset that we sent, answered or not; -1 when there is none."""
        entry = self._entries.get(queue)
        return -1 if entry is None else entry.sent

    def send(self, queue: MessageQueue, epoch: int, offset: int) -> None:
        """This offset leaves for the broker now."""
        if self.is_current(queue, epoch):
            entry = self._entries[queue]
            entry.sent = max(entry.sent, offset)

    def found(self, queue: MessageQueue, epoch: int, offset: int) -> None:
        """The previous owner committed this offset after our session had begun: nothing below it is news."""
        if self.is_current(queue, epoch):
            entry = self._entries[queue]
            entry.confirmed, entry.sent, entry.floor = offset, max(entry.sent, offset), offset

    def confirm(self, queue: MessageQueue, epoch: int, offset: int | None) -> None:
        """The broker said that it holds this offset; None: that it holds none."""
        if self.is_current(queue, epoch):
            self._entries[queue].confirmed = offset

    def is_unsent(self, queue: MessageQueue, epoch: int, offset: int) -> bool:
        """Whether this session is the current one and this offset is news for the broker."""
        entry = self._entries.get(queue)
        if entry is None or entry.epoch != epoch:
            return False
        return entry.confirmed != offset and offset >= entry.floor
