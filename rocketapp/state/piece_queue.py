"""A process queue of pieces: messages that were pulled together and are finished together.

Everything that a process queue says of messages is true here as well: it counts messages, and its commit offset is the
lowest offset that a restart must read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Piece
from rocketapp.state.process_queue import ProcessQueue

P = TypeVar("P", bound=Piece)


class PieceQueue(ProcessQueue[P]):
    """The unfinished pieces of one queue, in offset order."""

    __slots__ = ("_count",)
    size: int

    def __init__(self, message_queue: MessageQueue, first_offset: int, epoch: int = 0) -> None:
        super().__init__(message_queue, first_offset, epoch)
        self._count = 0

    def __len__(self) -> int:
        """How many messages are unfinished."""
        return self._count

    def put(self, messages: Sequence[P]) -> Sequence[P]:
        """Accept pulled pieces and return what is new of them: what was put before is cut off."""
        if self.closed:
            return ()
        taken = []
        for piece in messages:
            new = piece.since(self._end)
            if new is not None:
                self._unfinished[new.offset] = new
                self._end, self._highest = new.end, new.end - 1
                self.size += new.size
                self._count += len(new)
                taken.append(new)
        return taken

    def finish(self, message: P) -> None:
        """Forget a piece of which every message is handled."""
        self.finish_all((message,))

    def finish_all(self, messages: Iterable[P]) -> None:
        """Forget pieces of which every message is handled. A part of one is not the piece that was put: it stays."""
        for piece in messages:
            held = self._unfinished.get(piece.offset)
            if held is not None and held.end == piece.end:
                self._forget(self._unfinished.pop(piece.offset))
        if self._watchers:
            self._tell()

    def withdraw(self, offset: int) -> None:
        """Remove every piece that begins at `offset` or above. The queue's next owner pulls them again."""
        while self._unfinished and next(reversed(self._unfinished)) >= offset:
            self._forget(self._unfinished.popitem()[1])
        last = next(reversed(self._unfinished.values()), None)
        self._end = min(self._end, offset if last is None else max(offset, last.end))
        if self._watchers:
            self._tell()

    def _forget(self, piece: P) -> None:
        self.size -= piece.size
        self._count -= len(piece)
