"""The runs of messages in order: a line of those that follow one another, and the heads of many keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from rocketapp.consumer.items import first_of, last_of
from rocketapp.consumer.journal import Note
from rocketapp.consumer.workers.run import FreeRun, Pair, Run, Taker
from rocketapp.state.lease import Lease
from rocketapp.wire.record import Message


class Session(Protocol):
    """What runs tell: the delivery of one queue, which makes them."""

    lease: Lease
    has_keys: bool
    record_of: Callable[[int, int], bytes] | None

    @property
    def is_void(self) -> bool: ...
    def split(self, run: Any) -> None: ...
    def ended_call(self, line: LineRun, taker: Taker, item: Any, result: object, raised: bool) -> None: ...
    def ended_head(self, taker: Taker, item: Any, result: object, raised: bool) -> None: ...
    def returned(self, line: LineRun) -> None: ...
    def walked(self, run: HeadsRun) -> None: ...
    def fail(self, error: BaseException) -> None: ...


class _Leased(Run):
    """Its session may lose the lease: then it is void, and what was handled is the next owner's."""

    in_order: bool = True
    rests: bool = False
    """Its first message is not to start now, and is seen to, or is left to the next owner of the queue."""
    delivery: Session

    def acknowledge(self, finished: Sequence[Pair]) -> None:
        if not self.delivery.is_void:
            super().acknowledge(finished)

    def failed(self, error: BaseException) -> None:
        self.delivery.fail(error)


class LineRun(_Leased):
    """Messages that are handled one after the other: those of a queue, or of one key."""

    is_at_work: bool = False
    """It is with workers, or its first message rests, or the head of its key is still in another run."""
    sees_to_first: bool = False
    """What rests is the first one of `items`; a message that has failed is not among them."""
    checked: int = -1
    """Up to this offset it is counted what dead processes and earlier sessions have done: once for each message."""
    in_turn: Message | None = None
    """Its first message, when that is quarantined and has its turn."""
    timer: asyncio.TimerHandle | None = None
    formed_by: float | None = None
    """When the batch of its first message is formed, full or not."""

    def __init__(self, delivery: Session, number: int) -> None:
        """`number`: where it is found among the lines of its session."""
        super().__init__(())
        self.delivery = delivery
        self.number: int = number
        self.lease: Lease = delivery.lease
        self.record_of: Callable[[int, int], bytes] | None = delivery.record_of
        self.notes_each: bool = delivery.has_keys

    def __repr__(self) -> str:
        return f"<LineRun {self.number}: {len(self.items)} messages>"

    def note(self, note: Note, most: int) -> int:
        """What comes while a call is suspended is not in the note: it belongs to the next time."""
        items = self.items
        try:
            if self.record_of is None or not items[0][0].handler.runs_here:
                note.clear()
            elif not self.notes_each:
                most = min(most, len(items))
                note.write(self.record_of(first_of(items[0][1]).offset, last_of(items[most - 1][1]).offset))
        except IndexError:
            return 0  # it was given up meanwhile
        return most

    def ended(self, taker: Taker, item: Any, result: object, raised: bool) -> None:
        self.delivery.ended_call(self, taker, item, result, raised)

    def returned(self) -> None:
        self.delivery.returned(self)


class HeadsRun(_Leased, FreeRun):
    """The heads of different keys: they start independently of one another, under the lease."""

    notes_each: bool = True

    def __init__(self, delivery: Session, items: Sequence[Pair], *, is_of_one: bool) -> None:
        super().__init__(items, delivery, is_of_one=is_of_one)
        self.lease: Lease = delivery.lease
        self.record_of: Callable[[int, int], bytes] | None = delivery.record_of

    def started_to(self) -> int:
        """No started message lies above this offset; a thread may take the first one meanwhile."""
        try:
            return int(self.items[0][1].offset) - 1
        except IndexError:
            return self.last_offset

    def note(self, note: Note, most: int) -> int:
        """Each is noted down as it starts."""
        note.clear()
        return most

    def ended(self, taker: Taker, item: Any, result: object, raised: bool) -> None:
        self.delivery.ended_head(taker, item, result, raised)
        self.returned()

    def returned(self) -> None:
        self.delivery.walked(self)
