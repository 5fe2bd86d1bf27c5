"""Tells once per handler that its first messages lack the property that `order_by=` names."""

from __future__ import annotations

from functools import partial

from rocketapp.model.event import Observe, OrderKeyMissing
from rocketapp.model.subscription import Subscription
from rocketapp.state.missing_keys import MissingKeys


class KeyWatches:
    """Those of one group's handlers, over all their queues and sessions."""

    def __init__(self, group: str, observe: Observe) -> None:
        self._group, self._observe = group, observe
        self._by_handler: dict[tuple[str, str], MissingKeys] = {}

    def of(self, subscription: Subscription) -> MissingKeys | None:
        """What is to see the keys of a handler's messages; None when nothing is left to find out."""
        if not isinstance(subscription.order_by, str):
            return None
        key = (subscription.topic, subscription.expression)
        found = self._by_handler.get(key)
        if found is None:
            found = self._by_handler[key] = MissingKeys(partial(self._tell, subscription, subscription.order_by))
        return None if found.is_over else found

    def _tell(self, subscription: Subscription, name: str, count: int) -> None:
        self._observe(OrderKeyMissing(self._group, subscription.handler_name, subscription.topic, name, count))
