"""Messages whose concurrent handler runs for too long are sent back, so that they hold up their queue no more.

As Java's client does it: with the delay of level 3, and 16 of a queue at a time, the lowest first. The call goes on.
When the copy comes to this process while it still runs, the copy waits for its end: one process never works twice on
one message at the same time. What becomes of the first call does not matter any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rocketapp.consumer.group.owned import Owned
from rocketapp.consumer.handler import Handler
from rocketapp.consumer.items import Item, first_of, messages_of
from rocketapp.consumer.retry.failed_messages import TakesFailures
from rocketapp.consumer.retry.job import Acknowledgement
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.redelivery import Failure
from rocketapp.wire import properties as names
from rocketapp.wire.record import Message

_AT_ONCE = 16
"""Messages of one queue that are released in one sweep."""
_DELAY = 10.0
"""Seconds until a copy comes back: level 3."""


@dataclass(slots=True)
class _Running:
    item: Item
    released: list[Message] = field(default_factory=list)
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Called when the call has ended."""


class Released:
    """The released messages of one group, until their calls have ended. Concurrent handlers fail through it."""

    def __init__(self, failed: TakesFailures) -> None:
        """`failed` takes the messages that were not released."""
        self._failed = failed
        self._running: dict[int, _Running] = {}
        """By the id of the item that the call works on."""
        self._named: dict[str, dict[int, _Running]] = {}
        """The same by the names of released messages: every message that is about to start is looked up."""
        self._released: dict[int, Message] = {}
        """Released messages by their id."""

    def __repr__(self) -> str:
        return f"<Released: {len(self._running)} running>"

    def fail(self, handler: Handler, queue: Acknowledgement, message: Message, failure: Failure) -> None:
        """A concurrent handler failed on this message. One that was sent back while the call ran is done with."""
        if not self.is_released(message):
            self._failed.fail(handler, queue, message, failure)

    def add(self, item: Item, message: Message) -> None:
        """This message of a running call is sent back."""
        running = self._running.setdefault(id(item), _Running(item))
        running.released.append(message)
        self._released[id(message)] = message
        for name in _names(message):
            self._named.setdefault(name, {})[id(item)] = running

    def _remove(self, key: int) -> _Running:
        running = self._running.pop(key)
        for message in running.released:
            del self._released[id(message)]
            for name in _names(message):
                self._named.get(name, {}).pop(key, None)
                if not self._named.get(name, True):
                    del self._named[name]
        return running

    def end(self, in_hand: Iterable[tuple[Handler, Any]]) -> None:
        """These calls run: let the copies go on whose first call has ended."""
        hand = {id(item): item for _, item in in_hand} if self._running else {}
        for key, running in list(self._running.items()):
            if hand.get(key) is not running.item:
                for go_on in self._remove(key).waiting:
                    go_on()

    def is_released(self, message: Message) -> bool:
        """This message was sent back, and its call still runs or has just ended."""
        return id(message) in self._released

    def waits(self, item: Item, go_on: Callable[[], None]) -> bool:
        """Whether a call still runs for a message of this item; `go_on` is called when that has ended."""
        if not self._running:
            return False
        named = (self._named.get(name) for message in messages_of(item) for name in _names(message))
        for found in filter(None, named):
            for running in found.values():
                if running.item is not item:
                    if go_on not in running.waiting:
                        running.waiting.append(go_on)
                    return True
        return False


class Releasing:
    """Releases messages of one group."""

    def __init__(
        self,
        released: Released,
        failed: TakesFailures,
        *,
        in_hand: Callable[[], Sequence[tuple[Handler, Any]]],
        owned: Mapping[MessageQueue, Owned],
    ) -> None:
        """`failed` sends messages back. `in_hand()`: the running calls of concurrent handlers."""
        self._released, self._failed, self._in_hand, self._owned = released, failed, in_hand, owned

    def __repr__(self) -> str:
        return f"<Releasing {self._released}>"

    def sweep(self, expired: Iterable[tuple[Handler, Any, float]]) -> None:
        """These calls have run for too long."""
        concurrent = {id(item) for _, item in self._in_hand()}
        calls = [each for each in expired if id(each[1]) in concurrent]
        counts: Counter[MessageQueue] = Counter()
        for handler, item, seconds in sorted(calls, key=lambda each: first_of(each[1]).offset):
            for message in messages_of(item):
                queue = message.queue
                owned = None if queue is None else self._owned.get(queue)
                process_queue = None if owned is None else owned.process_queue
                if queue is None or process_queue is None or not process_queue.holds(message):
                    continue
                if self._released.is_released(message) or counts[queue] >= _AT_ONCE:
                    continue
                counts[queue] += 1
                self._released.add(item, message)
                text = f"its handler has been running for {seconds:.0f} s"
                self._failed.fail(handler, process_queue, message, Failure("TimeoutError", text, after=_DELAY))

    def look(self) -> None:
        """Once a second: let the copies go on whose first call has ended."""
        self._released.end(self._in_hand())


def _names(message: Message) -> tuple[str, ...]:
    """What a message and its copy have at least one of in common: a producer may have given it no id."""
    origin = message.properties.get(names.ORIGIN_MESSAGE_ID)
    found = (message.message_id, message.offset_message_id)
    return (*found, origin) if origin else found
