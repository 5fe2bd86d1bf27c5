"""Pulled messages on their way to one handler.

All workers of a handler draw from the one iterator of a `Work`, so that handing over a
message costs no queue operation, no tuple and no future. A list's iterator is advanced in
one step under the interpreter's lock, so threads may share it too.

Workers run items and report to the work's completion. They know neither offsets nor
counters: how a message is acknowledged belongs to the consume mode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import length_hint
from typing import Any, Protocol

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.items import first_of, last_of
from rocketapp.consumer.journal import Note
from rocketapp.wire.record import Message


class Acknowledge(Protocol):
    """Acknowledges messages whose handler returned None. Called on the loop only."""

    @property
    def done(self) -> Callable[[Message], None]:
        """Acknowledge one message: read once per work, called once per message."""
        ...

    def done_all(self, messages: Sequence[Message]) -> None:
        """Acknowledge several messages."""
        ...


class Completion(Acknowledge, Protocol):
    """Decides what becomes of items after their handler was called. Called on the loop only."""

    def judge(self, item: Any, result: object, raised: bool) -> None:
        """Decide about a batch, a returned value or an exception; `raised`: `result` is what the handler raised."""
        ...


class Workers(Protocol):
    """What calls one handler, for many works at once."""

    handler: Handler
    call: Callable[[Any], Any]
    """Calls it for one item."""
    is_quick: bool
    """Nothing of it waits or runs on: a worker that walks through messages of many handlers may call it at once."""

    @property
    def batch(self) -> tuple[int, float] | None:
        """Most messages of a batch and seconds to wait for them; None for a handler of single messages."""
        ...

    @property
    def is_paused(self) -> bool:
        """Its topic is paused: what is handed over waits."""
        ...

    def submit(self, work: Work) -> None:
        """Hand over work; an endless one may be handed over again at any time."""
        ...

    def in_flight(self) -> list[Any]:
        """Per worker what it works on, or None."""
        ...

    async def cancel(self, is_mine: Callable[[Any], bool]) -> None:
        """Cancel the running calls for these items, where they can be cancelled. They are judged as cancelled."""
        ...

    def adopt(self, hand: Any) -> None:
        """A call that another worker has begun is one of theirs from now on; only for those that are quick."""
        ...

    def resize(self, most: int) -> None:
        """At most this number of calls at once from now on; what runs beyond that ends, with what it has taken."""
        ...

    def change_batch(self, most: int) -> None:
        """Another most of messages in a batch holds from now on; only for a handler that takes batches."""
        ...

    async def stop(self) -> None:
        """Start nothing more, and cancel what can be cancelled."""
        ...

    def halt(self) -> None:
        """In a forked child: start nothing more."""
        ...


class Work:
    """Items of one queue for one handler: messages, or lists of messages for a batch handler."""

    __slots__ = (
        "_count",
        "_last",
        "_source",
        "completion",
        "finished",
        "first_offset",
        "is_alone",
        "is_collected",
        "is_endless",
        "is_queued",
        "items",
        "record",
        "record_of",
    )

    def __init__(self, batch: list[Any], completion: Completion) -> None:
        self._draw(iter(batch), completion)
        self._count, self._last = len(batch), last_of(batch[-1]).offset
        self.first_offset: int = first_of(batch[0]).offset

    @classmethod
    def endless(cls, items: Iterator[Any], completion: Completion) -> Work:
        """A work whose items come and go: it is handed over again whenever there are new ones.

        `items` is advanced in one step, goes on after a StopIteration, and its length hint is what may start now.
        """
        work = cls.__new__(cls)
        work._draw(items, completion)
        work._count, work._last, work.first_offset, work.is_endless = 0, -1, -1, True
        return work

    def _draw(self, items: Iterator[Any], completion: Completion) -> None:
        self.completion: Completion = completion
        """Workers report to it."""
        self.items: Iterator[Any] = items
        """Shared by all workers: taking an item starts it. Nothing else keeps the items alive."""
        self._source = items
        self.is_alone: bool = False
        """It is one item that may end the process: nothing of it is noted down once its call has ended."""
        self.record: bytes = b""
        """What a worker notes down that takes items of it."""
        self.record_of: Callable[[Message], bytes] | None = None
        """The same for each item: which ones a worker takes of an endless work shows one by one."""
        self.finished: list[Any] = []
        """Messages that threads have finished and the loop has not collected."""
        self.is_collected: bool = False
        """The loop will collect `finished` soon."""
        self.is_queued: bool = False
        """Workers have it among their works, which they change under their lock if they have one."""
        self.is_endless: bool = False
        """Workers take turns between such works: another one may wait behind it."""

    def __repr__(self) -> str:
        return f"<Work: {self.left} of {self._count} not started>"

    @property
    def left(self) -> int:
        """How many items are not started."""
        return length_hint(self._source)

    @property
    def startable(self) -> int:
        """How many of them may start now."""
        return length_hint(self.items)

    def draw_through(self, metered: Callable[[Iterator[Any]], Iterator[Any]]) -> None:
        """Let workers draw through another iterator, which may give nothing for a while."""
        self.items = metered(self.items)

    def noted(self, note: Note) -> Iterator[Any]:
        """The items that a worker takes, noted down."""
        if self.record_of is not None:
            return _OneByOne(self.items, note, self.record_of)
        note.write(self.record)
        return self.items

    @property
    def last_offset(self) -> int:
        """The highest offset of all items."""
        return self._last

    def withdraw(self) -> tuple[list[Any], int]:
        """Take back the items that are not started: those items, and an offset that no started one lies above (-1)."""
        left = list(self._source)
        if not left:
            return left, self._last
        return left, (first_of(left[0]).offset - 1 if len(left) < self._count else -1)


class _OneByOne(Iterator[Any]):
    """Items of which the one in flight is noted down."""

    __slots__ = ("_items", "_note", "_record_of")

    def __init__(self, items: Iterator[Any], note: Note, record_of: Callable[[Message], bytes]) -> None:
        self._items, self._note, self._record_of = items, note, record_of

    def __next__(self) -> Any:
        try:
            item = next(self._items)
        except StopIteration:
            self._note.clear()
            raise
        self._note.write(self._record_of(item))
        return item


def left_of(works: Iterable[Work], most: int) -> int:
    """How many items of these works may start, counted up to `most`: there may be very many works."""
    count = 0
    for work in works:
        if count >= most:
            break
        count += work.startable
    return min(count, most)
