"""Messages whose concurrent handler runs for too long are sent back, so that they hold up their queue no more.

As Java's client does it: with the delay of level 3, and 16 of a queue at a time, the lowest first. The call goes on.
When the copy comes to this process while it still runs, the copy waits for its end: one process never works twice on
one message at the same time. What becomes of the first call does not matter any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.items import Item, first_of, messages_of
from rocketapp.consumer.member import Owned
from rocketapp.consumer.retry.redelivery import Redelivery
from rocketapp.model.message_queue import MessageQueue
from rocketapp.state.redelivery import Failure
from rocketapp.wire import properties as names
from rocketapp.wire.record import Message

_AT_ONCE = 16
"""Messages of one queue that are sent back in one sweep."""
_DELAY = 10.0
"""Seconds until a copy comes back: level 3."""


@dataclass(slots=True)
class _Running:
    item: Item
    sent_back: list[Message] = field(default_factory=list)
    waiting: list[Callable[[], None]] = field(default_factory=list)
    """Called when the call has ended."""


class SlowSendBack:
    """The messages of one group that were sent back while their call runs on."""

    def __init__(self, redelivery: Redelivery) -> None:
        self._redelivery = redelivery
        self._running: dict[int, _Running] = {}
        """By the id of the item that the call works on."""
        self._named: dict[str, dict[int, _Running]] = {}
        """The same by the names of these messages: every message that is about to start is looked up."""

    def __repr__(self) -> str:
        return f"<SlowSendBack: {len(self._running)} running>"

    def __bool__(self) -> bool:
        return bool(self._running)

    def sweep(
        self, expired: Iterable[tuple[Handler, Any, float]], owned: Mapping[MessageQueue, Owned], running: Iterable[Any]
    ) -> None:
        """Send back what has run for too long: handler, item and seconds of each call.

        `running`: the items of all calls of concurrent handlers; the others keep their order.
        """
        concurrent = {id(item) for item in running}
        calls = [each for each in expired if id(each[1]) in concurrent]
        counts: Counter[MessageQueue] = Counter()
        for handler, item, seconds in sorted(calls, key=lambda each: first_of(each[1]).offset):
            for message in messages_of(item):
                queue = message.queue
                of_queue = None if queue is None else owned.get(queue)
                process_queue = None if of_queue is None else of_queue.process_queue
                if queue is None or process_queue is None or not process_queue.holds(message):
                    continue
                if id(message) in self._redelivery.running_on or counts[queue] >= _AT_ONCE:
                    continue
                counts[queue] += 1
                text = f"its handler has been running for {seconds:.0f} s"
                self._redelivery.fail(handler, process_queue, message, Failure("TimeoutError", text, after=_DELAY))
                self._add(item, message)

    def end(self, running: Iterable[Any]) -> None:
        """These items of concurrent handlers run: let the copies go on whose first call has ended."""
        items = {id(item): item for item in running} if self._running else {}
        for key, each in list(self._running.items()):
            if items.get(key) is not each.item:
                self._remove(key)
                for go_on in each.waiting:
                    go_on()

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

    def _add(self, item: Item, message: Message) -> None:
        running = self._running.setdefault(id(item), _Running(item))
        running.sent_back.append(message)
        self._redelivery.running_on[id(message)] = message
        for name in _names(message):
            self._named.setdefault(name, {})[id(item)] = running

    def _remove(self, key: int) -> None:
        for message in self._running.pop(key).sent_back:
            del self._redelivery.running_on[id(message)]
            for name in _names(message):
                self._named.get(name, {}).pop(key, None)
                if not self._named.get(name, True):
                    del self._named[name]


def _names(message: Message) -> tuple[str, ...]:
    """What a message and its copy have at least one of in common: a producer may have given it no id."""
    origin = message.properties.get(names.ORIGIN_MESSAGE_ID)
    found = (message.message_id, message.offset_message_id)
    return (*found, origin) if origin else found
