"""Consumer groups: members, subscriptions and lag."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from rocketapp.admin.cluster import AdminCluster, at_once
from rocketapp.client.calls import admin
from rocketapp.errors import BrokerError, NoRouteError, ProtocolError, RequestTimeoutError, did_you_mean
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import RESERVED_GROUPS
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.roll_out import Difference, differences, wants_of
from rocketapp.wire.requests.running_info import RunningInfo
from rocketapp.wire.requests.statistics import ConnectedClient, ConsumedOffset, ConsumerConnection

_SYSTEM = frozenset(
    {
        "TOOLS_CONSUMER",
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "SELF_TEST_CONSUMER_GROUP",
        "__MONITOR_CONSUMER",
        "CLIENT_INNER_PRODUCER",
    }
    | RESERVED_GROUPS
)
_SYSTEM_BEGINS = ("CID_RMQ_SYS_", "CID_ONS", "CID_SYS_RMQ_", "CID_HOUSEKEEPING")
BROADCASTING = "BROADCASTING"
ANSWER_TIMEOUT = 3.0
"""Seconds that a member may take to say what it subscribes."""


@dataclass(frozen=True, slots=True)
class ShownGroup:
    """A group, as its members and all brokers describe it."""

    name: str
    members: tuple[ConnectedClient, ...]
    subscriptions: tuple[SubscriptionData, ...]
    """As the brokers know them: the last heartbeat of any member counts."""
    message_model: str
    """CLUSTERING or BROADCASTING; empty without members."""
    offsets: dict[MessageQueue, ConsumedOffset]
    told: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By member: what it says itself that it subscribes, topic and tags. Members that do not answer are left out."""
    differ: bool = False
    """Whether members subscribe differently: then each change of heartbeat changes what the group gets."""

    @property
    def is_broadcasting(self) -> bool:
        """Whether its members keep their own offsets, so that those at brokers mean nothing."""
        return self.message_model == BROADCASTING

    @property
    def lag(self) -> int | None:
        """Messages stored and not committed; None when no broker knows."""
        return None if self.is_broadcasting else sum(lag_of(done) for done in self.offsets.values())


def lag_of(done: ConsumedOffset) -> int:
    """Messages of one queue that are stored and not committed."""
    return max(done.broker_offset - done.consumer_offset, 0)


async def list_groups(cluster: AdminCluster, *, every: bool = False) -> list[ShownGroup]:
    """All groups, sorted; `every`: including RocketMQ's own."""
    return await at_once(partial(_look_at, cluster), await group_names(cluster, every=every))


async def group_names(cluster: AdminCluster, *, every: bool = False) -> list[str]:
    """The names of all groups, sorted; `every`: including RocketMQ's own."""
    names = {name for names in (await cluster.from_reachable(admin.groups)).values() for name in names}
    return sorted(name for name in names if every or not is_system(name))


async def show_group(cluster: AdminCluster, group: str) -> ShownGroup:
    """Raises NoRouteError when no broker knows a member or an offset of it."""
    found = await _look_at(cluster, group)
    if not found.members and not found.offsets:
        await refuse_unknown(cluster, group)
    told = await at_once(partial(ask_member, cluster, group), [member.client_id for member in found.members])
    infos = {client_id: info for client_id, info in told if info is not None}
    wants = [wants_of(info.subscriptions) for info in infos.values()]
    return replace(
        found,
        told={name: {data.topic: data.expression for data in info.subscriptions} for name, info in infos.items()},
        differ=any(differences(wants[0], one, [group]) for one in wants[1:]),
    )


async def create_group(cluster: AdminCluster, group: str) -> list[str]:
    """Create a group on every master that lacks it. Returns the names of these brokers."""
    created = []
    for name in cluster.masters:
        connection = await cluster.connection(name)
        if group not in await admin.groups(connection, cluster.timeout):
            await admin.put_group(connection, group, cluster.timeout)
            created.append(name)
    return created


async def refuse_unknown(cluster: AdminCluster, group: str) -> None:
    """Raises NoRouteError that names the nearest group if no broker knows this one."""
    known = await group_names(cluster, every=True)
    if group not in known:
        mend = did_you_mean(group, known, otherwise=": see rocketapp group list")
        raise NoRouteError("", f"group {group} has neither members nor offsets here{mend}")


async def live_members(cluster: AdminCluster, group: str) -> tuple[ConnectedClient, ...]:
    """The members that any broker knows, each once. Raises TransportError when a broker does not answer."""
    return _members(await _told(cluster, group))


async def is_broadcasting(cluster: AdminCluster, group: str) -> bool:
    """Whether members say that they broadcast: each gets every message and keeps its own offsets."""
    return any(one.message_model == BROADCASTING for one in await _told(cluster, group))


async def _told(cluster: AdminCluster, group: str) -> list[ConsumerConnection]:
    """What each master that knows members reports about them."""
    answers = await cluster.from_all(lambda connection, timeout: admin.members(connection, group, timeout))
    return [answer for answer in answers.values() if answer is not None]


async def ask_member(cluster: AdminCluster, group: str, client_id: str) -> tuple[str, RunningInfo | None]:
    """The running info of a member; None if it is frozen or of a kind that has none."""
    for name in cluster.masters:
        if name in cluster.silent:
            continue
        try:
            info = await admin.running_info(await cluster.connection(name), group, client_id, ANSWER_TIMEOUT)
        except (BrokerError, RequestTimeoutError, ProtocolError):
            continue
        return client_id, info
    return client_id, None


async def _look_at(cluster: AdminCluster, group: str) -> ShownGroup:
    members = await cluster.from_reachable(lambda connection, timeout: admin.members(connection, group, timeout))
    told = [answer for answer in members.values() if answer is not None]
    subscriptions = {data.topic: data for one in told for data in one.subscriptions}
    stats = await cluster.from_reachable(lambda connection, timeout: admin.consume_stats(connection, group, timeout))
    return ShownGroup(
        group,
        _members(told),
        tuple(subscriptions[topic] for topic in sorted(subscriptions)),
        told[0].message_model if told else "",
        dict(sorted(item for offsets in stats.values() for item in offsets.items())),
    )


def _members(told: list[ConsumerConnection]) -> tuple[ConnectedClient, ...]:
    by_id = {member.client_id: member for one in told for member in one.connections}
    return tuple(member for _, member in sorted(by_id.items()))


def is_system(group: str) -> bool:
    """Whether this is a group of RocketMQ itself."""
    return group in _SYSTEM or group.startswith(_SYSTEM_BEGINS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGroup:
    """The check of one group of the app on one cluster."""

    group: str
    members: tuple[str, ...]
    """The client ids of its living members."""
    differences: tuple[Difference, ...]
    not_asked: tuple[str, ...]
    """Members that do not say what they subscribe."""
    missing: tuple[str, ...]
    """Topics of the app that no broker holds."""

    @property
    def is_alike(self) -> bool:
        """Whether all members subscribe alike and no topic is missing."""
        return not (self.differences or self.missing)


async def check_groups(
    cluster: AdminCluster, groups: Mapping[str, Mapping[str, SubscriptionData]]
) -> list[CheckedGroup]:
    """Compare the app's subscriptions by group with those of live members. Reads only."""
    known = frozenset(await cluster.topics())
    return [await _check(cluster, group, wants, known) for group, wants in groups.items()]


async def _check(
    cluster: AdminCluster, group: str, wants: Mapping[str, SubscriptionData], known: frozenset[str]
) -> CheckedGroup:
    members = [member.client_id for member in await live_members(cluster, group)]
    answers = dict(await at_once(partial(ask_member, cluster, group), members))
    told = [(client_id, wants_of(info.subscriptions)) for client_id, info in answers.items() if info is not None]
    return CheckedGroup(
        group=group,
        members=tuple(members),
        differences=tuple(one for client_id, theirs in told for one in differences(wants, theirs, [client_id])),
        not_asked=tuple(client_id for client_id, info in answers.items() if info is None),
        missing=tuple(topic for topic in sorted(wants) if topic not in known),
    )
