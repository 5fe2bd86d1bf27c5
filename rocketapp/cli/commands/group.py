"""`rocketapp group`: consumer groups, their members and their lag."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.asking import ask_cluster, cluster_options, json_time, local_time
from rocketapp.cli.completing import groups
from rocketapp.cli.failure import DONE
from rocketapp.cli.options import GROUP
from rocketapp.cli.output import print_json, say
from rocketapp.cli.tables import print_table

if TYPE_CHECKING:
    from rocketapp.admin.groups import ShownGroup


@click.group("group")
def command() -> None:
    """Show consumer groups."""


@command.command(
    "list", short_help="Show the groups with members and lag.", epilog="Example: rocketapp group list --json"
)
@click.option("--all", "every", is_flag=True, help="The groups of RocketMQ itself too.")
@cluster_options
def list_command(*, every: bool, name_server: str | None, as_json: bool) -> int:
    """Show the groups with the number of their members and their lag."""
    from rocketapp.admin.groups import list_groups

    found = ask_cluster(name_server, lambda cluster: list_groups(cluster, every=every))
    if as_json:
        print_json([{"group": one.name, "members": len(one.members), "lag": one.lag} for one in found])
        return DONE
    print_table(("GROUP", "MEMBERS", "LAG"), [(one.name, len(one.members), one.lag) for one in found])
    return DONE


@command.command(
    "show", short_help="Show the members and the lag of one group.", epilog="Example: rocketapp group show billing"
)
@click.argument("group", type=GROUP, shell_complete=groups)
@cluster_options
def show_command(*, group: str, name_server: str | None, as_json: bool) -> int:
    """Show the members of GROUP, what it subscribes, and its lag in each queue."""
    from rocketapp.admin.groups import lag_of, show_group

    found = ask_cluster(name_server, lambda cluster: show_group(cluster, group))
    if as_json:
        print_json(_shown(found))
        return DONE
    model = f", {found.message_model.lower()}" if found.message_model else ""
    lag = "each keeps its own offsets" if found.lag is None else f"lag {found.lag}"
    say(f"group {found.name}: {len(found.members)} members{model}, {lag}")
    if found.members:
        members = [
            (one.client_id, one.address, one.language.lower(), one.version, _subscribed(found, one.client_id))
            for one in found.members
        ]
        print_table(("MEMBER", "ADDRESS", "LANGUAGE", "VERSION", "SUBSCRIBES"), members)
    if found.differ:
        say("the members subscribe differently: a roll-out that is not over, or messages are lost between them")
    if found.subscriptions:
        print_table(
            ("TOPIC, AS BROKERS KNOW IT", "TAGS"), [(data.topic, data.expression) for data in found.subscriptions]
        )
    rows = [
        (
            queue.topic,
            queue.broker_name,
            queue.queue_id,
            done.consumer_offset,
            done.broker_offset,
            lag_of(done),
            local_time(done.last_ms),
        )
        for queue, done in found.offsets.items()
        if not found.is_broadcasting
    ]
    if rows:
        print_table(("TOPIC", "BROKER", "QUEUE", "COMMITTED", "NEXT", "LAG", "LAST CONSUMED, STORED"), rows)
    return DONE


def _shown(group: ShownGroup) -> dict[str, Any]:
    from rocketapp.admin.groups import lag_of

    return {
        "group": group.name,
        "model": group.message_model.lower() or None,
        "lag": group.lag,
        "members": [
            {
                "client_id": one.client_id,
                "address": one.address,
                "language": one.language,
                "version": one.version,
                "subscriptions": group.told.get(one.client_id),
            }
            for one in group.members
        ],
        "subscriptions": {data.topic: data.expression for data in group.subscriptions},
        "members_differ": group.differ,
        "queues": [
            {
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queue_id": queue.queue_id,
                "committed_offset": done.consumer_offset,
                "next_offset": done.broker_offset,
                "lag": lag_of(done),
                "last_consumed_stored_at": json_time(done.last_ms),
            }
            for queue, done in group.offsets.items()
            if not group.is_broadcasting
        ],
    }


def _subscribed(group: ShownGroup, client_id: str) -> str:
    """What a member says of itself, without the retries; empty when it does not say."""
    from rocketapp.model.names import is_retry_topic

    said = group.told.get(client_id, {})
    return ", ".join(
        topic if tags == "*" else f"{topic} ({tags})"
        for topic, tags in sorted(said.items())
        if not is_retry_topic(topic)
    )
