"""`rocketapp check`: whether an app and the living members of its groups subscribe alike, before it is started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click

from rocketapp.admin.cluster import AdminCluster
from rocketapp.admin.groups import CheckedGroup, check_groups
from rocketapp.app.app import RocketApp
from rocketapp.app.declare.registry import union_of
from rocketapp.app.settings import Settings
from rocketapp.cli.cluster import clusters_of, connected
from rocketapp.cli.failure import DONE, FAILED
from rocketapp.cli.options import app_command, json_option, name_server_option
from rocketapp.cli.output import counted, show, table_lines
from rocketapp.cli.runtime import run_in_loop
from rocketapp.cli.settings import subscriptions_of
from rocketapp.model.subscription import Subscription, SubscriptionData


@click.command("check", epilog="Example: rocketapp check app:app")
@name_server_option
@json_option
@app_command
def command(*, app: RocketApp, settings: Settings, as_json: bool) -> int:
    """Compare APP with the members of its groups. What it subscribes is compared with what they do, and with the
    topics of the cluster. Changes nothing. Ends with 1 when something differs or is missing, with 2 when the app cannot
    be loaded or the cluster is not reached.
    """
    found = run_in_loop(_check(app, settings, subscriptions_of(app, settings)), "asyncio")
    show([_document(cluster, one) for cluster, one in found], _lines(found), as_json=as_json)
    return DONE if all(one.is_alike for _, one in found) else FAILED


async def _check(
    app: RocketApp, settings: Settings, subscriptions: Sequence[Subscription]
) -> list[tuple[str, CheckedGroup]]:
    """By the name of its cluster every group; the unnamed one is empty."""
    found: list[tuple[str, CheckedGroup]] = []
    for cluster, there, own in clusters_of(app, settings, subscriptions):
        async with connected(there) as client:
            checked = await check_groups(await AdminCluster.of(client), _wants(own))
        found += [(cluster, one) for one in checked]
    return found


def _wants(subscriptions: Sequence[Subscription]) -> dict[str, dict[str, SubscriptionData]]:
    """By group and topic what the handlers want together."""
    groups: dict[str, dict[str, list[Subscription]]] = {}
    for one in subscriptions:
        groups.setdefault(one.group, {}).setdefault(one.topic, []).append(one)
    return {group: {topic: union_of(same) for topic, same in topics.items()} for group, topics in groups.items()}


def _lines(found: Sequence[tuple[str, CheckedGroup]]) -> Iterator[str]:
    if not found:
        yield "nothing is subscribed"
    for cluster, one in found:
        yield headline(cluster, one)
        if one.differences:
            rows = [(each.client_id, each.topic, each.theirs or "-", each.ours or "-") for each in one.differences]
            yield from table_lines(("MEMBER", "TOPIC", "SUBSCRIBES", "THIS APP"), rows)
        for client_id in one.not_asked:
            yield f"member {client_id} does not say what it subscribes"
        for topic in one.missing:
            yield f"topic {topic} does not exist: it is consumed as soon as it is created"


def headline(cluster: str, one: CheckedGroup) -> str:
    """The group, how many members it has, and whether those that say what they subscribe agree with the app."""
    count, telling = len(one.members), len(one.members) - len(one.not_asked)
    where = f" on cluster {cluster}" if cluster else ""
    alike = ""
    if telling and not one.differences:
        alike = ", all subscribe alike" if telling == count else f", {telling} of them known to subscribe alike"
    return f"group {one.group}{where}: {counted(count, 'member')}{alike}"


def _document(cluster: str, one: CheckedGroup) -> dict[str, Any]:
    return {
        "cluster": cluster or None,
        "group": one.group,
        "alike": one.is_alike,
        "members": list(one.members),
        "not_asked": list(one.not_asked),
        "differences": [
            {"member": each.client_id, "topic": each.topic, "theirs": each.theirs or None, "ours": each.ours or None}
            for each in one.differences
        ],
        "missing_topics": list(one.missing),
    }
