"""The keys of messages with `order_by=`, and a look whether any message has the property that is named there."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable
from functools import partial
from typing import Any

from rocketapp.consumer.member import Member
from rocketapp.consumer.workers.run import Taker
from rocketapp.model.event import OrderKeyMissing
from rocketapp.model.subscription import Subscription
from rocketapp.state.missing_keys import MissingKeys
from rocketapp.state.process_queue import ProcessQueue
from rocketapp.wire.properties import value_of
from rocketapp.wire.record import Message

_MOST_SPARE = 256
"""Keys without a message that are remembered, beside as many as have one."""


class KeysOfHandler:
    """The keys of the messages of one handler in one session."""

    __slots__ = ("_function", "_missing", "key_of", "may_share", "places")

    def __init__(self, taker: Taker, missing: MissingKeys | None) -> None:
        self._function = _key_function(taker.handler.subscription)
        self._missing = missing
        self.key_of: Callable[[Message], Hashable] = self._function if missing is None else self._seen
        """What tells the key of a message."""
        self.may_share: bool = taker.is_plain and taker.goes_with is not taker
        """Heads of its keys may share a run with others."""
        self.places: dict[Hashable, int] = {}
        """By key: the number of its line, or the offset of its head, which may be done."""

    def _seen(self, message: Message) -> Hashable:
        key = self._function(message)
        if self._missing is not None:
            self._missing.saw(key)
            if self._missing.is_over:
                self.key_of = self._function
        return key

    def forget(self, lines: Container[int], process_queue: ProcessQueue[Any]) -> None:
        """Keys of which no message is left, when there are many."""
        if len(self.places) > 2 * len(process_queue) + _MOST_SPARE:
            is_unfinished = process_queue.is_unfinished
            self.places = {key: place for key, place in self.places.items() if place in lines or is_unfinished(place)}


def _key_function(subscription: Subscription) -> Callable[[Message], Hashable]:
    """The key of a message, as `order_by` says; a property as it is encoded. Messages without it share the key None."""
    order_by = subscription.order_by
    if order_by is None:
        raise ValueError(f"{subscription.handler_name} has no order_by")
    if callable(order_by):
        return order_by
    entry = b"\x02%b\x01" % order_by.encode()
    return lambda message: value_of(message.raw_properties, entry)


class OrderKeys:
    """Those of one group's handlers, over all their queues and sessions."""

    def __init__(self, member: Member) -> None:
        self._group, self._observe = member.name, member.observe
        self._missing: dict[tuple[str, str], MissingKeys] = {}

    def of(self, taker: Taker) -> KeysOfHandler:
        """The keys of a handler in a new session."""
        missing = self._missing_of(taker.handler.subscription)
        return KeysOfHandler(taker, None if missing is None or missing.is_over else missing)

    def _missing_of(self, subscription: Subscription) -> MissingKeys | None:
        if not isinstance(subscription.order_by, str):
            return None
        key = subscription.topic, subscription.expression
        found = self._missing.get(key)
        if found is None:
            found = self._missing[key] = MissingKeys(partial(self._tell, subscription, subscription.order_by))
        return found

    def _tell(self, subscription: Subscription, name: str, count: int) -> None:
        self._observe(OrderKeyMissing(self._group, subscription.handler_name, subscription.topic, name, count))
