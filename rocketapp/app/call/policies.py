"""Failure policies of plugins, for the subscriptions whose declaration, routers and app have none."""

from __future__ import annotations

from dataclasses import replace

from rocketapp.errors import PluginError
from rocketapp.hooks.manager import Plugins
from rocketapp.model.policy import Policy, unfit_for_concurrent
from rocketapp.model.subscription import Subscription


class Policies:
    """Asks plugins once per subscription."""

    def __init__(self, plugins: Plugins) -> None:
        self._plugins = plugins
        self._known: dict[tuple[str, ...], Policy | None] = {}

    def complete(self, one: Subscription) -> Subscription:
        """The subscription with its policy. Raises PluginError for an answer that it cannot have."""
        if one.retry is not None:
            return one
        key = (one.cluster, one.group, one.topic, one.expression, one.handler_name, one.place)
        if key not in self._known:
            self._known[key] = self._asked(one)
        policy = self._known[key]
        return one if policy is None else replace(one, retry=policy)

    def _asked(self, one: Subscription) -> Policy | None:
        """The first answer in the order of plugins."""
        for hook in self._plugins.hooks("failure_policy"):
            policy = hook.call(subscription=one)
            if policy is None:
                continue
            if isinstance(policy, Policy):
                is_concurrent = not one.orderly and one.order_by is None
                problem = unfit_for_concurrent(policy) if is_concurrent else None
                if problem is None:
                    return policy
            else:
                problem = "return a Policy, or None to decline"
            told = f"failure_policy for {one.handler_name} ({one.place}) returned {policy!r}: {problem}"
            raise PluginError(hook.plugin, told)
        return None
