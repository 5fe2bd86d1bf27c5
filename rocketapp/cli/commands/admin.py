"""`rocketapp topic`, `group` and `offset`: what administrators ask of a cluster, and change in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import Any

import click

from rocketapp.admin.cluster import AdminCluster
from rocketapp.admin.groups import (
    ShownGroup,
    create_group,
    group_names,
    lag_of,
    list_groups,
    refuse_unknown,
    show_group,
)
from rocketapp.admin.offsets import Plan, QueueOffset, Target, apply, plan_reset, show_offsets
from rocketapp.admin.topics import ListedTopic, ShownTopic, create_topic, list_topics, show_topic
from rocketapp.cli.cluster import ask_cluster, json_time, local_time
from rocketapp.cli.failure import FAILED, CommandError
from rocketapp.cli.options import GROUP, TOPIC, cluster_options
from rocketapp.cli.output import Column, counted, item_lines, items_as_json, show, show_items, table_lines
from rocketapp.errors import did_you_mean
from rocketapp.model.message_queue import MessageQueue
from rocketapp.model.names import is_retry_topic
from rocketapp.model.route import QueueData
from rocketapp.wire.requests.statistics import ConnectedClient, ConsumedOffset

PERMS = {6: "read, write", 4: "read", 2: "write"}


def _queue_columns(queue_of: Callable[[Any], MessageQueue]) -> tuple[Column, ...]:
    """The topic, the broker and the id of the queue that a row is about."""
    return (
        Column("TOPIC", "topic", lambda row: queue_of(row).topic),
        Column("BROKER", "broker", lambda row: queue_of(row).broker_name),
        Column("QUEUE", "queue_id", lambda row: queue_of(row).queue_id),
    )


HELD = (
    *_queue_columns(itemgetter(0))[1:],
    Column("FIRST", "first_offset", lambda held: held[1].min_offset),
    Column("NEXT", "next_offset", lambda held: held[1].max_offset),
    Column("LAST STORED", None, lambda held: local_time(held[1].updated_ms)),
    Column(None, "last_stored_at", lambda held: json_time(held[1].updated_ms)),
)
"""Of a queue of a topic, and what it holds."""
GROUPS = (
    Column("GROUP", "group", lambda one: one.name),
    Column("MEMBERS", "members", lambda one: len(one.members)),
    Column("LAG", "lag", lambda one: one.lag),
)
MEMBERS = (
    Column("MEMBER", "client_id", lambda row: row[0].client_id),
    Column("ADDRESS", "address", lambda row: row[0].address),
    Column("LANGUAGE", None, lambda row: row[0].language.lower()),
    Column(None, "language", lambda row: row[0].language),
    Column("VERSION", "version", lambda row: row[0].version),
    Column("SUBSCRIBES", None, lambda row: _subscribed(row[1])),
    Column(None, "subscriptions", itemgetter(1)),
)
CONSUMED = (
    *_queue_columns(itemgetter(0)),
    Column("COMMITTED", "committed_offset", lambda done: done[1].consumer_offset),
    Column("NEXT", "next_offset", lambda done: done[1].broker_offset),
    Column("LAG", "lag", lambda done: lag_of(done[1])),
    Column("LAST CONSUMED, STORED", None, lambda done: local_time(done[1].last_ms)),
    Column(None, "last_consumed_stored_at", lambda done: json_time(done[1].last_ms)),
)
"""Of a queue of a group, and how far the group is in it."""
OFFSETS = (
    *_queue_columns(attrgetter("queue")),
    Column("FIRST", "first_offset", lambda one: one.held.start),
    Column("NEXT", "next_offset", lambda one: one.held.stop),
    Column("COMMITTED", "committed_offset", lambda one: one.committed),
    Column("LAG", "lag", lambda one: one.lag),
)
MOVES = (
    *_queue_columns(attrgetter("queue")),
    Column("FROM", "from", lambda move: move.before),
    Column("", None, lambda move: "->"),
    Column("TO", "to", lambda move: move.after),
)


@click.group("topic")
def topic_commands() -> None:
    """Show and create topics."""


@topic_commands.command("list", epilog="Example: rocketapp topic list --all")
@click.option("--all", "every", is_flag=True, help="Retries, dead letters and system topics too.")
@cluster_options
def list_topics_command(*, every: bool, as_json: bool) -> int:
    """Show the topics, with their queues on each broker."""
    found = ask_cluster(lambda cluster: list_topics(cluster, every=every))
    rows = [
        (topic.name, topic.kind, data.broker_name, data.read_queues, data.write_queues, _perm(data.perm))
        for topic in found
        for data in topic.brokers
    ]
    lines = table_lines(("TOPIC", "KIND", "BROKER", "READ QUEUES", "WRITE QUEUES", "MAY BE"), rows)
    return show([_listed_topic(topic) for topic in found], lines, as_json=as_json)


@topic_commands.command("show", epilog="Example: rocketapp topic show orders")
@click.argument("topic", type=TOPIC)
@cluster_options
def show_topic_command(*, topic: str, as_json: bool) -> int:
    """Show the queues of TOPIC, and the groups that consume it."""
    found = ask_cluster(lambda cluster: show_topic(cluster, topic))
    lines = []
    for name, config in found.configs.items():
        order = ", orderly" if config.order else ""
        queues = f"{config.read_queues} queues to read, {config.write_queues} to write"
        lines.append(f"{found.name} on {name}: {found.kind}, {queues}, may be {_perm(config.perm)}{order}")
    lines += [f"groups: {', '.join(found.groups) or 'none'}", *item_lines(HELD, found.offsets.items())]
    return show(_topic_as_json(found), lines, as_json=as_json)


@topic_commands.command("create", epilog="Example: rocketapp topic create orders --queues 16")
@click.argument("topic", type=TOPIC)
@click.option("--queues", type=click.IntRange(1, 65535), default=8, show_default=True, help="Queues on each broker.")
@click.option("--broker", metavar="NAME", help="Only on this broker. Default: on every one.")
@cluster_options
def create_topic_command(*, topic: str, queues: int, broker: str | None, as_json: bool) -> int:
    """Create TOPIC. A topic that is there already is not changed."""

    async def create(cluster: AdminCluster) -> list[str]:
        if broker is not None and broker not in cluster.masters:
            raise CommandError(f"--broker {broker}: no such broker: known are {', '.join(cluster.masters)}")
        created = await create_topic(cluster, topic, queues=queues, broker=broker)
        if not created:
            raise CommandError(f"topic {topic} is there already: see rocketapp topic show {topic}", FAILED)
        return created

    names = ask_cluster(create)
    line = f"created {topic} with {queues} queues on {', '.join(names)}"
    return show({"topic": topic, "queues": queues, "brokers": names}, [line], as_json=as_json)


def _listed_topic(topic: ListedTopic) -> dict[str, Any]:
    return {"topic": topic.name, "kind": topic.kind, "brokers": [_queues(data) for data in topic.brokers]}


def _queues(data: QueueData) -> dict[str, Any]:
    return {
        "broker": data.broker_name,
        "read_queues": data.read_queues,
        "write_queues": data.write_queues,
        "readable": data.readable,
        "writable": data.writable,
    }


def _topic_as_json(topic: ShownTopic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "kind": topic.kind,
        "brokers": {name: config.to_json() for name, config in topic.configs.items()},
        "groups": list(topic.groups),
        "messages": topic.messages,
        "queues": items_as_json(HELD, topic.offsets.items()),
    }


def _perm(perm: int) -> str:
    return PERMS.get(perm & 6, "nothing")


@click.group("group")
def group_commands() -> None:
    """Show consumer groups and their members."""


@group_commands.command("list", epilog="Example: rocketapp group list --json")
@click.option("--all", "every", is_flag=True, help="The groups of RocketMQ itself too.")
@cluster_options
def list_groups_command(*, every: bool, as_json: bool) -> int:
    """Show the groups with their members and their lag."""
    return show_items(GROUPS, ask_cluster(lambda cluster: list_groups(cluster, every=every)), as_json=as_json)


@group_commands.command("create", epilog="Example: rocketapp group create billing")
@click.argument("group", type=GROUP)
@cluster_options
def create_group_command(*, group: str, as_json: bool) -> int:
    """Create GROUP on every broker. For clusters that do not create groups themselves (autoCreateSubscriptionGroup)."""
    names = ask_cluster(lambda cluster: create_group(cluster, group))
    if not names:
        raise CommandError(f"group {group} is there already: see rocketapp group show {group}", FAILED)
    return show({"group": group, "brokers": names}, [f"created {group} on {', '.join(names)}"], as_json=as_json)


@group_commands.command("show", epilog="Example: rocketapp group show billing")
@click.argument("group", type=GROUP)
@cluster_options
def show_group_command(*, group: str, as_json: bool) -> int:
    """Show the members of GROUP, what it subscribes, and its lag."""
    found = ask_cluster(lambda cluster: show_group(cluster, group))
    model = f", {found.message_model.lower()}" if found.message_model else ""
    lag = "each keeps its own offsets" if found.lag is None else f"lag {found.lag}"
    lines = [f"group {found.name}: {counted(len(found.members), 'member')}{model}, {lag}"]
    if found.members:
        lines += item_lines(MEMBERS, _members(found))
    if found.differ:
        lines.append(
            "the members subscribe differently: a roll-out that is not over, or messages are lost between them"
        )
    if found.subscriptions:
        rows = [(data.topic, data.expression) for data in found.subscriptions]
        lines += table_lines(("TOPIC, AS BROKERS KNOW IT", "TAGS"), rows)
    if offsets := _offsets(found):
        lines += item_lines(CONSUMED, offsets)
    return show(_group_as_json(found), lines, as_json=as_json)


def _group_as_json(group: ShownGroup) -> dict[str, Any]:
    return {
        "group": group.name,
        "model": group.message_model.lower() or None,
        "lag": group.lag,
        "members": items_as_json(MEMBERS, _members(group)),
        "subscriptions": {data.topic: data.expression for data in group.subscriptions},
        "members_differ": group.differ,
        "queues": items_as_json(CONSUMED, _offsets(group)),
    }


def _members(group: ShownGroup) -> list[tuple[ConnectedClient, Mapping[str, str] | None]]:
    """Each with the topics and tags that it says it subscribes; None when it does not say."""
    return [(one, group.told.get(one.client_id)) for one in group.members]


def _subscribed(said: Mapping[str, str] | None) -> str:
    """What a member says that it subscribes, without the retries."""
    known = sorted((topic, tags) for topic, tags in (said or {}).items() if not is_retry_topic(topic))
    return ", ".join(topic if tags == "*" else f"{topic} ({tags})" for topic, tags in known)


def _offsets(group: ShownGroup) -> list[tuple[MessageQueue, ConsumedOffset]]:
    """None of a broadcasting group: its members keep their own."""
    return [] if group.is_broadcasting else list(group.offsets.items())


@click.group("offset")
def offset_commands() -> None:
    """Show and reset the offsets of a group."""


@offset_commands.command("show", epilog="Example: rocketapp offset show billing --topic orders")
@click.argument("group", type=GROUP)
@click.option("--topic", type=TOPIC, help="Only this one. Default: every topic in which the group has offsets.")
@cluster_options
def show_offsets_command(*, group: str, topic: str | None, as_json: bool) -> int:
    """Show what each queue holds, and what GROUP has committed."""

    async def look(cluster: AdminCluster) -> list[QueueOffset]:
        found = await show_offsets(cluster, group, topic)
        if all(one.committed is None for one in found):
            await refuse_unknown(cluster, group)
        return found

    return show_items(OFFSETS, ask_cluster(look), as_json=as_json)


@offset_commands.command("reset", epilog="Example: rocketapp offset reset billing orders --to first --dry-run")
@click.argument("group", type=GROUP)
@click.argument("topic", type=TOPIC)
@click.option(
    "--to", "target", required=True, metavar="WHERE", help="first, last, an offset, or a time: 2026-01-31T08:00+01:00."
)
@click.option("--queue", "queues", type=click.IntRange(min=0), multiple=True, help="Only this one; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Print what would be set, and set nothing.")
@cluster_options
def reset_offsets_command(
    *, group: str, topic: str, target: str, queues: tuple[int, ...], dry_run: bool, as_json: bool
) -> int:
    """Set the offsets of GROUP in TOPIC. Live members are moved by the broker; where it cannot, they are refused."""
    wanted = parse_target(target)

    async def reset(cluster: AdminCluster) -> tuple[Plan, str]:
        try:
            plan = await plan_reset(cluster, group, topic, wanted, only=frozenset(queues))
        except ValueError as error:
            raise CommandError(f"--to {target}: {error}") from error
        if missing := sorted(set(queues) - {move.queue.queue_id for move in plan.moves}):
            raise CommandError(
                f"--queue {missing[0]}: topic {topic} has no such queue: see rocketapp topic show {topic}"
            )
        if not dry_run:
            await apply(cluster, plan)
        is_new = not plan.members and all(move.before is None for move in plan.moves)
        return plan, did_you_mean(group, await group_names(cluster)) if is_new else ""

    plan, near = ask_cluster(reset)
    lines = item_lines(MOVES, plan.moves)
    if near:
        lines.append(f"group {group} had committed nothing in {topic}{near}")
    live = f"; it has {counted(len(plan.members), 'live member')}" if plan.members else ""
    lines.append(f"nothing was set: --dry-run{live}" if dry_run else f"group {group} goes on there")
    return show(_planned(plan, dry_run=dry_run), lines, as_json=as_json)


def parse_target(text: str) -> Target:
    """`first`, `last`, an offset, or a time; one without a zone is of this machine's. Raises CommandError."""
    if text in ("first", "last"):
        return "first" if text == "first" else "last"
    try:
        if text.isascii() and text.isdecimal():
            return int(text)
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.astimezone()
        moment.timestamp()
    except (ValueError, OverflowError):
        raise CommandError(
            f"--to {text}: write first, last, an offset such as 1200, or a time such as 2026-01-31T08:00+01:00"
        ) from None
    return moment


def _planned(plan: Plan, *, dry_run: bool) -> dict[str, Any]:
    return {
        "group": plan.group,
        "dry_run": dry_run,
        "live_members": [one.client_id for one in plan.members],
        "queues": items_as_json(MOVES, plan.moves),
    }
