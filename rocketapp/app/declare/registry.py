"""Finds conflicts between handlers before anything starts, and names both places.

One consumer serves one group of one cluster. Its handlers share a subscription per topic, so they must agree in what
belongs to the topic (orderly, start, retries) and differ in their tags. Defaults come from settings, which are read at
start: the rules are then checked again on complete subscriptions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rocketapp.errors import SetupError
from rocketapp.model.subscription import SQL92, Subscription, SubscriptionData, kind_of

if TYPE_CHECKING:
    from rocketapp.consumer.handler import ConsumedTopic

_SHARED = ("orderly", "start", "retries", "mode", "commit")
"""What handlers of one topic and group agree in: it belongs to the topic's queues."""
_REST = ""
"""Stands among the tags for every tag without a handler of its own. It cannot be `*`, which may be a tag."""
UNNAMED = ""
"""The cluster of `--name-server`."""


@dataclass(frozen=True, slots=True)
class ConsumedGroup:
    """A group of one cluster with all its topics: the plan for one consumer."""

    cluster: str
    group: str
    topics: tuple[ConsumedTopic, ...]


class TakenTopics:
    """The subscriptions added so far; a new one is compared with those of its own topic and group.

    Those agree in what `_SHARED` names, so that one of them represents all.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], Subscription] = {}
        """(cluster, group) -> its first handler, which says whether it is broadcast."""
        self._topics: dict[tuple[str, str, str], dict[str, Subscription]] = {}
        """(cluster, group, topic) -> tag -> who takes it, in the order of declaration."""

    def add(self, new: Subscription) -> None:
        """Raises SetupError, with both places, when it contradicts another one of its topic and group."""
        first = self._groups.setdefault((new.cluster, new.group), new)
        owners = self._topics.setdefault((new.cluster, new.group, new.topic), {})
        where, found = f"group {new.group!r}", None
        if new.broadcast != first.broadcast:
            said = f"broadcast={new.broadcast} contradicts broadcast={first.broadcast}"
            found = first, f"{said}: a group is broadcast or not as a whole: give this handler a group= of its own"
        elif owners:
            where, found = f"topic {new.topic!r} of {where}", _contradiction(owners, new)
        if found is not None:
            other, why = found
            raise SetupError(new.place, f"{where}: {why}; the other is {other.handler_name} at {other.place}")
        owners.update(dict.fromkeys(new.tags or (_REST,), new))


def _contradiction(owners: Mapping[str, Subscription], new: Subscription) -> tuple[Subscription, str] | None:
    """The handler of the same topic and group that contradicts the new one, and why; or None."""
    first = next(iter(owners.values()))
    if not (kind_of(first).by_message and kind_of(new).by_message):
        return first, "a polled topic has no other handler in its group: give this one a group= of its own"
    for name in _SHARED:
        one, other = getattr(first, name), getattr(new, name)
        if one != other:
            said = f"{name}={other!r} contradicts {name}={one!r}"
            return first, f"{said}: handlers of one topic and group agree in it"
    if (first.order_by is None) != (new.order_by is None):
        return first, "one has order_by= and the other has not: handlers of one topic and group agree in it"
    if new.sql or first.sql:
        why = "a broker applies one sql= to a topic and group, for one handler: give this one a group= of its own"
        return first, why
    twice = min((tag for tag in new.tags or (_REST,) if tag in owners), default=None)
    if twice is None:
        return None
    if twice == _REST:
        why = "two handlers take every tag that no other names: name tags= on one, or give it a group= of its own"
    else:
        why = f"tag {twice!r} has two handlers, and a message goes to one: for both, give one a group= of its own"
    return owners[twice], why


def union_of(subscriptions: Sequence[Subscription]) -> SubscriptionData:
    """The union of what the handlers of one topic subscribe, as sent to brokers. The consumer sets its version."""
    topic = subscriptions[0].topic
    if sql := subscriptions[0].sql:
        return SubscriptionData(topic, sql, expression_type=SQL92)
    tags = [one.tags for one in subscriptions]
    if not all(tags):
        return SubscriptionData(topic)
    union = frozenset().union(*tags)
    return SubscriptionData(topic, " || ".join(sorted(union)), union)
