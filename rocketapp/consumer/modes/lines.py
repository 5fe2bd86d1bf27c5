"""Lines: messages in order, each of which waits for the one before, of a queue or of a key."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Hashable, Sequence
from itertools import islice, takewhile
from typing import Any

from rocketapp.consumer.handler import cut, first_of, last_of
from rocketapp.consumer.journal import Note
from rocketapp.consumer.member import Member
from rocketapp.consumer.modes.outcomes import text_of
from rocketapp.consumer.workers.run import Run, Taker
from rocketapp.model.event import OrderKeyMissing
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.state.redelivery import Failure
from rocketapp.wire.properties import reader_of
from rocketapp.wire.record import Message

FIRST = 100
"""Messages without the property that `order_by=` names, and none with it, after which the name is probably wrong."""
_MOST_SPARE = 256
"""Keys without a message that are remembered, beside as many as have one."""


class LineRun(Run):
    """Messages of a queue or a key that are handled one after the other."""

    is_at_work: bool = False
    """It is with workers, or its first message rests, or the head of its key is still in another run."""
    checked: int = -1
    """Up to this offset it is counted what dead processes and earlier sessions have done: once for each message."""
    forms_batches: bool = False
    """Its messages are free: they wait until a batch is formed of them."""
    timer: asyncio.TimerHandle | None = None
    formed_by: float | None = None
    """When the batch of its first message is formed, full or not."""

    def __init__(self, delivery: Any, number: int) -> None:
        """`number`: identifies it among the lines of its session."""
        super().__init__((), delivery)
        self.record_of: Callable[[int, int], bytes] | None = delivery.record_of
        self.number: int = number

    def has_formed(self, most: int, *, is_last: bool) -> bool:
        """Form a batch of the messages in front that follow each other and have one handler, or wait for more.

        Does not wait if these are the last ones. After the wait the delivery starts the batch.
        """
        taker, item = self.items[0]
        if not isinstance(item, Message):
            if len(item) > most:
                self.put_back(taker, self.items.popleft()[1])
            return True
        count = min(most, len(self.items))
        if not self.forms_batches:  # others may lie between them
            ours = takewhile(lambda pair: pair[0] is taker and isinstance(pair[1], Message), self.items)
            count = sum(1 for _ in islice(ours, most))
        loop = asyncio.get_running_loop()
        if self.formed_by is None:
            self.formed_by = loop.time() + taker.handler.subscription.batch_wait
        if count < most and count == len(self.items) and loop.time() < self.formed_by and not is_last:
            if self.timer is None:
                self.timer = loop.call_at(self.formed_by, self._is_late)
            return False
        self.wait_no_more()
        batch = [self.items.popleft()[1] for _ in range(count)]
        self.items.appendleft((taker, batch))
        return True

    def _is_late(self) -> None:
        self.timer = None
        self.delivery.start(self)

    def wait_no_more(self) -> None:
        """Stop waiting for more messages of the first batch."""
        self.formed_by = None
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def put_back(self, taker: Taker, messages: Sequence[Message]) -> None:
        """Put messages back in front; those of a batch as a batch that waits for no more."""
        most = taker.caller.batch
        self.items.extendleft((taker, item) for item in reversed(messages if most is None else cut(messages, most)))

    def __repr__(self) -> str:
        return f"<LineRun {self.number}: {len(self.items)} messages>"

    def note(self, note: Note, most: int) -> int:
        """Record them in the journal. Messages that come while a call is suspended are recorded the next time."""
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


class HandlerKeys:
    """The keys of the messages of one handler in one session."""

    __slots__ = ("_function", "_keyless", "_observe", "_subscription", "key_of", "places")

    def __init__(self, taker: Taker, places: dict[Hashable, int], keyless: Counter[str], member: Member) -> None:
        """`places`: shared by all handlers with the same `order_by`.

        `keyless`: by handler how many of its first messages, of all queues, lack the property; FIRST: stop counting.
        """
        self._keyless, self._observe, self._subscription = keyless, member.observe, taker.handler.subscription
        order_by: Any = self._subscription.order_by
        self._function: Callable[[Message], Hashable] = order_by
        of_ours = self._function
        if isinstance(order_by, str):  # as it is encoded; messages without the property share the key None
            value_of, of_ours = reader_of(order_by), self._seen
            self._function = lambda message: value_of(message.raw_properties)
        self.key_of: Callable[[Message], Hashable] = of_ours if taker.handler.runs_here else self._of_others
        """What tells the key of a message."""
        self.places: dict[Hashable, int] = places
        """By key: the number of its line, or the offset of its head, which may be done."""

    def _seen(self, message: Message) -> Hashable:
        """The key of one of the first messages.

        If none of them has the property, that is reported once: it may be misspelt.
        """
        key, about, keyless = self._function(message), self._subscription, self._keyless
        if key is not None:
            keyless[about.handler_name] = FIRST
        elif keyless[about.handler_name] < FIRST:
            keyless[about.handler_name] += 1
            if keyless[about.handler_name] < FIRST:
                return key
            name = str(about.order_by)
            self._observe(OrderKeyMissing(about.group, about.handler_name, about.topic, name, FIRST))
        self.key_of = self._function
        return key

    def _of_others(self, message: Message) -> Hashable:
        """Messages that only another member handles share one key: our function may not know them."""
        try:
            key = self._function(message)
            hash(key)
        except Exception:
            return self
        return key


def forget(places: dict[Hashable, int], lines: Container[int], process_queue: ProcessQueue[Any]) -> None:
    """Forget keys without messages, when there are many."""
    if (count := len(places) - _MOST_SPARE) > 0 and count > 2 * len(process_queue):
        is_unfinished = process_queue.is_unfinished
        for key in [key for key, place in places.items() if not (place in lines or is_unfinished(place))]:
            del places[key]


def no_place(error: Exception) -> Failure:
    """Why a message whose `order_by` raised this is a dead letter."""
    text = f"{type(error).__name__}: {text_of(error, '')}"
    return Failure("OrderBy", f"order_by= failed, so that its place is not known: {text}")
