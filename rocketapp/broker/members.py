"""The members of consumer and producer groups, as their heartbeats report them.

Members are kept by channel, that is, by connection, as Apache RocketMQ does. A client that
reconnects is a second member until its old connection ends, and the end of the old connection does
not remove the new member. A group without members is forgotten.

Every change of a consumer group returns whether its members have to be notified, so that they
rebalance.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from rocketapp.broker.filtering import Filter, filter_of
from rocketapp.model.names import is_retry_topic
from rocketapp.model.subscription import SubscriptionData
from rocketapp.transport.connection import Connection
from rocketapp.wire.requests.clients import BROADCASTING, ConsumerData

_MOST_COMPARED, _LONGEST_SHOWN = 64, 200
"""Members whose subscriptions are compared, and characters of an expression that are shown."""


@dataclass(slots=True)
class GroupMember:
    """One client in one group, on one channel."""

    client_id: str
    language: str
    version: int
    address: str
    heard: float
    """Monotonic time of its last heartbeat."""
    subscribes: Mapping[str, str] = field(default_factory=dict)
    """Topic -> expression, as its last heartbeat said."""


class Group:
    """The members of one group, by their channels, and what they subscribe to: producers to nothing."""

    def __init__(self, name: str) -> None:
        self.name: str = name
        self.members: dict[Connection, GroupMember] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.filters: dict[str, Filter] = {}
        """By topic; a topic with an illegal expression has none."""
        self.difference: str = ""
        """How members subscribe differently, which loses messages; empty when they do not."""
        self.consume_type = self.message_model = self.consume_from = ""

    def __repr__(self) -> str:
        return f"<Group {self.name}: {len(self.members)} members>"

    @property
    def is_broadcasting(self) -> bool:
        return self.message_model == BROADCASTING

    def subscribe(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Store the subscriptions of a heartbeat; return whether topics were added or removed."""
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        topics_changed = wanted.keys() != self.subscriptions.keys()
        for topic in self.subscriptions.keys() - wanted.keys():
            del self.subscriptions[topic]
            self.filters.pop(topic, None)
        for topic, subscription in wanted.items():
            known = self.subscriptions.get(topic)
            if known is None or subscription.version > known.version:
                self.subscriptions[topic] = subscription
                self.filters.pop(topic, None)
                with contextlib.suppress(ValueError):  # its pulls are refused, and nothing else that is in a heartbeat
                    self.filters[topic] = filter_of(subscription)
        return topics_changed

    def compare(self) -> None:
        """Look whether the members subscribe alike."""
        members = list(itertools.islice(self.members.values(), _MOST_COMPARED))
        first = members[0]
        other = next((member for member in members if member.subscribes != first.subscribes), None)
        if other is None:
            self.difference = ""
            return
        said = first.subscribes.items() ^ other.subscribes.items()
        topic = min(topic for topic, _ in said)
        self.difference = f"its members subscribe to {topic} differently: " + ", ".join(
            f"{member.client_id} to {member.subscribes.get(topic, 'nothing of it')[:_LONGEST_SHOWN]}"
            for member in (first, other)
        )


class Groups:
    """All groups of consumers, or of producers, that have members."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._groups_of: dict[Connection, set[str]] = {}

    def __repr__(self) -> str:
        return f"<Groups: {len(self._groups)} groups on {len(self._groups_of)} channels>"

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups.values())

    def group(self, name: str) -> Group:
        """A group, which has no members when it is not known."""
        return self._groups.get(name) or Group(name)

    def members(self, name: str) -> Mapping[Connection, GroupMember]:
        """The members of a group, by their connections."""
        group = self._groups.get(name)
        return {} if group is None else group.members

    def put(self, channel: Connection, member: GroupMember, name: str) -> Group:
        """Add or renew a member of a group."""
        group = self._groups[name] = self.group(name)
        group.members[channel] = member
        self._groups_of.setdefault(channel, set()).add(name)
        return group

    def consumes(self, channel: Connection, member: GroupMember, data: ConsumerData) -> bool:
        """Add or renew a consumer after its heartbeat. True if the group's members have to be notified."""
        known = self.members(data.group).get(channel)
        group = self.put(channel, member, data.group)
        member.subscribes = {
            each.topic: each.expression for each in data.subscriptions if not is_retry_topic(each.topic)
        }
        if known is None or known.subscribes != member.subscribes:
            group.compare()
        group.consume_type, group.message_model = data.consume_type, data.message_model
        group.consume_from = data.consume_from
        topics_changed = group.subscribe(data.subscriptions)
        return known is None or known.client_id != member.client_id or topics_changed

    def unregister(self, channel: Connection, group: str) -> bool:
        """Remove the client from one group. True if it was a member."""
        known = self._groups.get(group)
        if known is None or known.members.pop(channel, None) is None:
            return False
        groups = self._groups_of[channel]
        groups.discard(group)
        if not groups:
            del self._groups_of[channel]
        if not known.members:
            del self._groups[group]
        elif known.difference:
            known.compare()
        return True

    def close(self, channel: Connection) -> list[str]:
        """Remove the members of a channel that has ended; return the groups that lost a member."""
        return [group for group in sorted(self._groups_of.get(channel, ())) if self.unregister(channel, group)]

    def silent_since(self, time: float) -> Iterator[Connection]:
        """Channels of members that were not heard since then."""
        return (channel for group in self for channel, member in group.members.items() if member.heard < time)

    def channel_of(self, client_id: str) -> Connection | None:
        """The connection of this client, which may be in any group; None when no heartbeat named it."""
        members = (each for group in self for each in group.members.items())
        return next((channel for channel, member in members if member.client_id == client_id), None)
