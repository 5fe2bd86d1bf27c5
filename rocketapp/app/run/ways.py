"""Ask plugins for their ways of consuming, topic by topic, at start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rocketapp.app.declare.adjusting import OF_HANDLERS
from rocketapp.errors import PluginError
from rocketapp.hooks.manager import Plugins
from rocketapp.model.handler_kind import kind_of
from rocketapp.model.subscription import Subscription

if TYPE_CHECKING:
    from rocketapp.consumer.ways.plugged import PluggedIn


def plugged_in(plugins: Plugins, subscriptions: Sequence[Subscription]) -> PluggedIn | None:
    """The way of the topic that these subscriptions share, or None. Raises PluginError for what cannot work."""
    found = [(one, answer) for one in subscriptions for answer in plugins.ask("consuming_way", subscription=one)]
    if not found:
        return None
    from rocketapp.consumer.ways.intake import IntakeWay
    from rocketapp.consumer.ways.plugged import PluggedIn

    subscription, answer = found[0]
    where = f"topic {subscription.topic!r} of {subscription.handler_name} ({subscription.place})"
    if len(found) > 1 and found[1][1].plugin != answer.plugin:
        raise PluginError(answer.plugin, f"consuming_way: plugin {found[1][1].plugin} wants to consume {where} as well")
    if not callable(answer.value) and not isinstance(answer.value, IntakeWay):
        raise PluginError(
            answer.plugin, f"consuming_way returned {answer.value!r}: return a function, an IntakeWay, or None"
        )
    if len(subscriptions) > 1:
        raise PluginError(
            answer.plugin,
            f"consuming_way: {where} has other handlers in its group, by tag: leave one",
        )
    if kind_of(subscription).in_order:
        raise PluginError(
            answer.plugin, f"consuming_way: {where} is declared in order: remove that, a plugin's way has its own order"
        )
    if subscription.broadcast:
        raise PluginError(
            answer.plugin, f"consuming_way: {where} is broadcast: remove that, a plugin's way takes each message once"
        )
    if subscription.mode == "pop":
        raise PluginError(
            answer.plugin, f'consuming_way: {where} has mode="pop": remove that, the queues of a plugin are pulled'
        )
    way = answer.value if isinstance(answer.value, IntakeWay) else IntakeWay(new_intake=answer.value)
    return PluggedIn(answer.plugin, way)


def own_limits(plugged: PluggedIn) -> frozenset[str]:
    """Names of the limits that the plugin decides on itself, in place of settings and options."""
    way = plugged.way
    names = OF_HANDLERS
    if way.max_messages is not None:
        names |= {"queue_max_messages", "queue_max_span", "topic_max_messages"}
    if way.max_bytes is not None:
        names |= {"queue_max_bytes", "topic_max_bytes"}
    return names
