"""The keys of messages with `order_by=`, and a look whether any message has the property that is named there."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from rocketapp.consumer.handler import Handler
from rocketapp.consumer.member import Member
from rocketapp.model.event import OrderKeyMissing
from rocketapp.model.subscription import Subscription, key_function
from rocketapp.state.missing_keys import MissingKeys
from rocketapp.wire.record import Message

KeyOf = Callable[[Message], Hashable]


class OrderKeys:
    """Those of one group's handlers, over all their queues and sessions."""

    def __init__(self, member: Member) -> None:
        self._group, self._observe = member.name, member.observe
        self._functions: dict[int, KeyOf] = {}
        """By the identity of handlers."""
        self._missing: dict[tuple[str, str], MissingKeys] = {}

    def of(self, handler: Handler) -> KeyOf:
        """What tells the key of a message for this handler."""
        function = self._functions.get(id(handler))
        if function is None:
            function = self._functions[id(handler)] = key_function(handler.subscription)
        missing = self._missing_of(handler.subscription)
        return function if missing is None or missing.is_over else partial(_seen, function, missing)

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


def _seen(function: KeyOf, missing: MissingKeys, message: Message) -> Hashable:
    key = function(message)
    if not missing.is_over:
        missing.saw(key)
    return key
