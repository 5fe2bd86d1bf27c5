"""Failure policies of plugins, for the subscriptions whose declaration, routers and app have none."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rocketapp.errors import PluginError
from rocketapp.hooks.manager import Plugins
from rocketapp.model.policy import Policy, unfit_for_concurrent
from rocketapp.model.subscription import Subscription


def with_policies(subscriptions: Iterable[Subscription], plugins: Plugins) -> list[Subscription]:
    """The subscriptions with their policies: plugins are asked for those that have none.

    Raises PluginError for an answer that a subscription cannot have.
    """
    return [one if one.retry is not None else replace(one, retry=_asked(one, plugins)) for one in subscriptions]


def _asked(one: Subscription, plugins: Plugins) -> Policy | None:
    """The first answer in the order of plugins."""
    for hook in plugins.hooks("failure_policy"):
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
