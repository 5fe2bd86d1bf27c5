"""Messages of one queue that were pulled and are not finished yet.

After every change a process queue answers one question: up to which offset is
everything done? Only that number may be committed. A crash can then repeat a
message; it can never skip one.

A process queue belongs to one session of an assignment: it carries the session's epoch and lease, and once
it is closed it accepts nothing and names no offset any more, even if messages of it are still finished.

No clock, no lock, no task. Offsets come in; an offset comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.pulled import Pulled
from rocketapp.model.snapshot import HandlerStats
from rocketapp.state.lease import Lease

M = TypeVar("M", bound=Pulled)


class ProcessQueue(Generic[M]):
    """The unfinished messages of one queue, in offset order."""

    __slots__ = (
        "_end",
        "_highest",
        "_unfinished",
        "_watchers",
        "answered_at",
        "broker_end",
        "closed",
        "epoch",
        "lease",
        "message_queue",
        "parked",
        "received",
        "size",
        "when_finished",
    )

    def __init__(self, message_queue: MessageQueue, first_offset: int, epoch: int = 0) -> None:
        self.message_queue: MessageQueue = message_queue
        self.epoch: int = epoch
        self.lease: Lease = Lease.endless()
        """While it is certain, messages may start, and what is finished may be committed."""
        # A plain dict steps over its deleted slots when it is asked for its first key: a few times a pull.
        # An OrderedDict takes half as long again for every message.
        self._unfinished: dict[int, M] = {}
        self._end = first_offset
        self._highest = first_offset
        self.received: int = first_offset
        """How many messages were put. The count begins at the first offset, so that `finished` of the next session of
        this queue goes on where this one ends, and not at 0."""
        self.size: int = 0
        """Bytes of the unfinished messages' records."""
        self.broker_end: int | None = None
        """Where the queue ended when the broker last answered a pull; None before that."""
        self.answered_at: float = 0.0
        """When that was: the time of the loop."""
        self.closed: bool = False
        self.parked: tuple[M, str] | None = None
        """The message that was parked last, not by a pause, and why; it may be done by now."""
        self._watchers: tuple[Callable[[], None], ...] = ()
        self.when_finished: dict[int, Callable[[], None]] = {}
        """By offset: called once when that message is finished."""

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self)} unfinished, commit {self.commit_offset}"
        return f"<ProcessQueue {self.message_queue} epoch {self.epoch}: {state}>"

    def __len__(self) -> int:
        """How many messages are unfinished."""
        return len(self._unfinished)

    @property
    def finished(self) -> int:
        """Grows by one with each message that is finished, and not with those that the broker passes over."""
        return self.received - len(self)

    @property
    def end_offset(self) -> int:
        """The offset behind the last message that was put: where the next pull begins."""
        return self._end

    @property
    def commit_offset(self) -> int:
        """The lowest offset that a restart must read again."""
        return next(iter(self._unfinished), self._end)

    @property
    def span(self) -> int:
        """How far the highest message that was put lies above the lowest unfinished one: what a crash may repeat."""
        if not self._unfinished:
            return 0
        return self._highest - next(iter(self._unfinished))

    @property
    def oldest(self) -> M | None:
        """The unfinished message with the lowest offset; None without any."""
        return next(iter(self._unfinished.values()), None)

    def unfinished(self) -> list[M]:
        """The unfinished messages in offset order."""
        return list(self._unfinished.values())

    def holds(self, message: M) -> bool:
        """Whether this very message is unfinished here."""
        return self._unfinished.get(message.offset) is message

    def is_unfinished(self, offset: int) -> bool:
        """Whether the message of this offset is unfinished."""
        return offset in self._unfinished

    def put(self, messages: Sequence[M]) -> Sequence[M]:
        """Accept pulled messages and return the new ones: what was put before is ignored."""
        if self.closed or not messages:
            return ()
        unfinished, end, size = self._unfinished, self._end, 0
        if messages[0].offset < end:
            # Pulled again, or a batch that begins below the wanted offset.
            messages = [message for message in messages if message.offset >= end]
        for message in messages:
            unfinished[message.offset] = message
            size += message.size
        if messages:
            self._highest = messages[-1].offset
            self._end = self._highest + 1
            self.received += len(messages)
            self.size += size
        return messages

    def advance(self, next_offset: int) -> None:
        """Nothing below `next_offset` is left to pull: filtered messages count as done."""
        if next_offset > self._end and not self.closed:
            self._end = next_offset

    def finish(self, message: M) -> None:
        """Forget a handled message."""
        if message.offset in self._unfinished:
            self.finish_all((message,))

    def finisher(self, counters: HandlerStats) -> Callable[[M], None]:
        """A function that forgets one handled message and counts it.

        Called for every message of a fast handler: one call where two would cost a fifth more.
        """
        pop, when_finished = self._unfinished.pop, self.when_finished

        def finish(message: M) -> None:
            counters.handled += 1
            if pop(message.offset, None) is not None:
                self.size -= message.size
                if self._watchers:
                    self._tell()
                if when_finished:
                    self._go_on((message,))

        return finish

    def finish_all(self, messages: Sequence[M]) -> None:
        """Forget handled messages; whoever watches hears of it once."""
        pop, size = self._unfinished.pop, 0
        for message in messages:
            if pop(message.offset, None) is not None:
                size += message.size
        self.size -= size
        if self._watchers:
            self._tell()
        if self.when_finished:
            self._go_on(messages)

    def _go_on(self, messages: Sequence[M]) -> None:
        for message in messages:
            call = self.when_finished.pop(message.offset, None)
            if call is not None:
                call()

    def withdraw(self, offset: int) -> None:
        """Remove every message from `offset` on. They were not started; the queue's next owner pulls them again."""
        unfinished = self._unfinished
        while unfinished and next(reversed(unfinished)) >= offset:
            self.size -= unfinished.popitem()[1].size
            self.received -= 1
        self._end = min(self._end, offset)
        if self._watchers:
            self._tell()

    def watch(self, callback: Callable[[], None]) -> None:
        """Call this after messages were finished or withdrawn. While nothing watches, finishing costs nothing extra.

        One callback may watch many queues, and many callbacks one queue; each of them once.
        """
        if callback not in self._watchers:
            self._watchers = (*self._watchers, callback)

    def unwatch(self, callback: Callable[[], None]) -> None:
        """Call it no more. Nothing happens if it did not watch."""
        self._watchers = tuple(known for known in self._watchers if known != callback)

    def _tell(self) -> None:
        # The callbacks of this moment: a callback may unwatch itself.
        for callback in self._watchers:
            callback()

    def close(self) -> None:
        """The session is over: accept nothing more, and name no offset to commit."""
        self.closed = True
