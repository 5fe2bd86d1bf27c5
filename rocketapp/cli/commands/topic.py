"""`rocketapp topic`: which topics there are, what they hold, and a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.asking import ask_cluster, cluster_options, json_time, local_time
from rocketapp.cli.completing import topics
from rocketapp.cli.failure import DONE, FAILED, CommandError
from rocketapp.cli.options import TOPIC
from rocketapp.cli.output import print_json, say
from rocketapp.cli.tables import print_table

if TYPE_CHECKING:
    from rocketapp.admin.topics import ListedTopic, ShownTopic
    from rocketapp.model.route import QueueData

PERMS = {6: "read, write", 4: "read", 2: "write"}


@click.group("topic")
def command() -> None:
    """Show and create topics."""


@command.command("list", short_help="Show the topics with their queues.", epilog="Example: rocketapp topic list --all")
@click.option("--all", "every", is_flag=True, help="Retries, dead letters and system topics too.")
@cluster_options
def list_command(*, every: bool, name_server: str | None, as_json: bool) -> int:
    """Show the topics, with their queues on each broker."""
    from rocketapp.admin.topics import list_topics

    found = ask_cluster(name_server, lambda cluster: list_topics(cluster, every=every))
    if as_json:
        print_json([_listed(topic) for topic in found])
        return DONE
    rows = [
        (topic.name, topic.kind, data.broker_name, data.read_queues, data.write_queues, _perm(data.perm))
        for topic in found
        for data in topic.brokers
    ]
    print_table(("TOPIC", "KIND", "BROKER", "READ QUEUES", "WRITE QUEUES", "MAY BE"), rows)
    return DONE


@command.command(
    "show", short_help="Show what one topic holds, and its groups.", epilog="Example: rocketapp topic show orders"
)
@click.argument("topic", type=TOPIC, shell_complete=topics)
@cluster_options
def show_command(*, topic: str, name_server: str | None, as_json: bool) -> int:
    """Show the queues of TOPIC with what they hold, and the groups that consume it."""
    from rocketapp.admin.topics import show_topic

    found = ask_cluster(name_server, lambda cluster: show_topic(cluster, topic))
    if as_json:
        print_json(_shown(found))
        return DONE
    for name, config in found.configs.items():
        order = ", orderly" if config.order else ""
        queues = f"{config.read_queues} queues to read, {config.write_queues} to write"
        say(f"{found.name} on {name}: {found.kind}, {queues}, may be {_perm(config.perm)}{order}")
    say(f"groups: {', '.join(found.groups) or 'none'}")
    rows = [
        (queue.broker_name, queue.queue_id, held.min_offset, held.max_offset, local_time(held.updated_ms))
        for queue, held in found.offsets.items()
    ]
    print_table(("BROKER", "QUEUE", "FIRST", "NEXT", "LAST STORED"), rows)
    return DONE


@command.command("create", short_help="Create a topic.", epilog="Example: rocketapp topic create orders --queues 16")
@click.argument("topic", type=TOPIC)
@click.option("--queues", type=click.IntRange(1, 65535), default=8, show_default=True, help="Queues on each broker.")
@click.option("--broker", metavar="NAME", help="Only on this broker. Default: on every one.")
@cluster_options
def create_command(*, topic: str, queues: int, broker: str | None, name_server: str | None, as_json: bool) -> int:
    """Create TOPIC. A topic that is there already is not changed."""
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.admin.topics import create_topic
    from rocketapp.model.names import topic_problem

    if (problem := topic_problem(topic)) is not None:
        raise CommandError(problem)

    async def create(cluster: AdminCluster) -> list[str]:
        if broker is not None and broker not in cluster.masters:
            raise CommandError(f"--broker {broker}: no such broker: known are {', '.join(cluster.masters)}")
        created = await create_topic(cluster, topic, queues=queues, broker=broker)
        if not created:
            raise CommandError(f"topic {topic} is there already: see rocketapp topic show {topic}", FAILED)
        return created

    names = ask_cluster(name_server, create)
    if as_json:
        print_json({"topic": topic, "queues": queues, "brokers": names})
    else:
        say(f"created {topic} with {queues} queues on {', '.join(names)}")
    return DONE


def _listed(topic: ListedTopic) -> dict[str, Any]:
    return {"topic": topic.name, "kind": topic.kind, "brokers": [_queues(data) for data in topic.brokers]}


def _queues(data: QueueData) -> dict[str, Any]:
    return {
        "broker": data.broker_name,
        "read_queues": data.read_queues,
        "write_queues": data.write_queues,
        "readable": data.readable,
        "writable": data.writable,
    }


def _shown(topic: ShownTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "kind": topic.kind,
        "brokers": {name: config.to_json() for name, config in topic.configs.items()},
        "groups": list(topic.groups),
        "messages": topic.messages,
        "queues": [
            {
                "broker": queue.broker_name,
                "queue_id": queue.queue_id,
                "first_offset": held.min_offset,
                "next_offset": held.max_offset,
                "last_stored_at": json_time(held.updated_ms),
            }
            for queue, held in topic.offsets.items()
        ],
    }


def _perm(perm: int) -> str:
    return PERMS.get(perm & 6, "nothing")
