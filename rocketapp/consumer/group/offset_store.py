"""What a store of offsets has to do that stands in place of the brokers. It arrives through the hook `offset_store`."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from rocketapp.model.message_queue import MessageQueue


class Taken(NamedTuple):
    """What a session of a queue begins with."""

    epoch: int
    """Higher than that of every session before, of all processes together; 1 or more."""
    offset: int | None
    """What was stored last; None when nothing ever was."""


class OffsetStore(Protocol):
    """Keeps how far each queue of each group is done, for all processes of the group.

    An offset says that everything below it is done. Each time that a process begins with a queue it takes it, and gets
    an epoch; with it, it writes until another process takes the queue. So a process that was cut off or stood still
    cannot set the offset of its successor back: the store refuses what an older epoch writes.

    Every method is called on the event loop and must not block it; it answers or raises within
    `consumer.commit_timeout`. When it raises, the question stays open: the error is told in the log, and the store is
    asked again. A method that raises, or that did not answer in time, has perhaps been carried out.
    """

    async def open(self) -> None:
        """Called once, before the first queue is taken. What it raises stops the start of the app."""
        ...

    async def close(self) -> None:
        """Called once, after the last write, and when `open` has raised."""
        ...

    async def take(self, group: str, queue: MessageQueue) -> Taken:
        """A new epoch, stored for good before it is returned, and the offset.

        When it raises, the queue is not consumed: it is taken again a second later. An offset that cannot be read is
        not None: None lets the group begin where its brokers, or `start=`, say.
        """
        ...

    async def read(self, group: str, queue: MessageQueue) -> int | None:
        """What was stored last, by any process; None when nothing ever was."""
        ...

    async def write(self, group: str, queue: MessageQueue, offset: int, epoch: int) -> bool:
        """Returns True when the offset is stored so that no crash takes it back, a lower one than before as well.

        False, with nothing stored, when a higher epoch has been given out. Epoch 0 is the start position of a group:
        it is stored only if nothing was, and its queue was never taken. Writing the same twice is as writing it once.
        """
        ...
