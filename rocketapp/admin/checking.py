"""What an app wants, compared with the living members of its groups and with the topics of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from rocketapp.admin.cluster import AdminCluster, at_once
from rocketapp.admin.groups import ask_member, live_members
from rocketapp.consumer.group.asked_members import said_of
from rocketapp.model.subscription import SubscriptionData
from rocketapp.state.roll_out import Difference, differences


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedGroup:
    """One group of the app on one cluster."""

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
        """Nothing differs, and no topic is missing."""
        return not (self.differences or self.missing)


async def check_groups(
    cluster: AdminCluster, groups: Mapping[str, Mapping[str, SubscriptionData]]
) -> list[CheckedGroup]:
    """Compare what each group of the app wants by topic. Nothing is changed."""
    known = frozenset(await cluster.topics())
    return [await _check(cluster, group, wants, known) for group, wants in groups.items()]


async def _check(
    cluster: AdminCluster, group: str, wants: Mapping[str, SubscriptionData], known: frozenset[str]
) -> CheckedGroup:
    members = [member.client_id for member in await live_members(cluster, group)]
    answers = dict(await at_once(partial(ask_member, cluster, group), members))
    said = [said_of(client_id, info) for client_id, info in answers.items() if info is not None]
    return CheckedGroup(
        group=group,
        members=tuple(members),
        differences=tuple(difference for one in said for difference in differences(wants, one)),
        not_asked=tuple(client_id for client_id, info in answers.items() if info is None),
        missing=tuple(topic for topic in sorted(wants) if topic not in known),
    )
