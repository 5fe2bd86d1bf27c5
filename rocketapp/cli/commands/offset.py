"""`rocketapp offset`: the committed offsets of a group, and how to move them."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.asking import ask_cluster, cluster_options
from rocketapp.cli.completing import groups, topics
from rocketapp.cli.failure import DONE, CommandError
from rocketapp.cli.options import GROUP, TOPIC
from rocketapp.cli.output import print_json, say
from rocketapp.cli.tables import print_table
from rocketapp.errors import did_you_mean

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.admin.offsets import Plan, QueueOffset, Target


@click.group("offset")
def command() -> None:
    """Show and reset the offsets of a group."""


@command.command(
    "show",
    short_help="Show what a group has committed.",
    epilog="Example: rocketapp offset show billing --topic orders",
)
@click.argument("group", type=GROUP, shell_complete=groups)
@click.option(
    "--topic",
    type=TOPIC,
    shell_complete=topics,
    help="Only this one. Default: every topic in which the group has offsets.",
)
@cluster_options
def show_command(*, group: str, topic: str | None, name_server: str | None, as_json: bool) -> int:
    """Show what each queue holds, and what GROUP has committed."""
    from rocketapp.admin.groups import refuse_unknown
    from rocketapp.admin.offsets import show_offsets

    async def look(cluster: AdminCluster) -> list[QueueOffset]:
        found = await show_offsets(cluster, group, topic)
        if all(one.committed is None for one in found):
            await refuse_unknown(cluster, group)
        return found

    found = ask_cluster(name_server, look)
    if as_json:
        print_json([_shown(one) for one in found])
        return DONE
    rows = [
        (
            one.queue.topic,
            one.queue.broker_name,
            one.queue.queue_id,
            one.held.start,
            one.held.stop,
            one.committed,
            one.lag,
        )
        for one in found
    ]
    print_table(("TOPIC", "BROKER", "QUEUE", "FIRST", "NEXT", "COMMITTED", "LAG"), rows)
    return DONE


@command.command(
    "reset",
    short_help="Move a group to other offsets.",
    epilog="Example: rocketapp offset reset billing orders --to first --dry-run",
)
@click.argument("group", type=GROUP, shell_complete=groups)
@click.argument("topic", type=TOPIC, shell_complete=topics)
@click.option(
    "--to", "target", required=True, metavar="WHERE", help="first, last, an offset, or a time: 2026-01-31T08:00+01:00."
)
@click.option("--queue", "queues", type=click.IntRange(min=0), multiple=True, help="Only this one; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Print what would be set, and set nothing.")
@cluster_options
def reset_command(
    *,
    group: str,
    topic: str,
    target: str,
    queues: tuple[int, ...],
    dry_run: bool,
    name_server: str | None,
    as_json: bool,
) -> int:
    """Set the offsets of GROUP in TOPIC. Live members are moved by the broker; where it cannot, they are refused."""
    from rocketapp.admin.groups import group_names
    from rocketapp.admin.offsets import apply, plan_reset

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

    plan, near = ask_cluster(name_server, reset)
    if as_json:
        print_json(_planned(plan, dry_run=dry_run))
        return DONE
    rows = [
        (move.queue.topic, move.queue.broker_name, move.queue.queue_id, move.before, "->", move.after)
        for move in plan.moves
    ]
    print_table(("TOPIC", "BROKER", "QUEUE", "FROM", "", "TO"), rows)
    if near:
        say(f"group {group} had committed nothing in {topic}{near}")
    live = f"; it has {len(plan.members)} live members" if plan.members else ""
    say(f"nothing was set: --dry-run{live}" if dry_run else f"group {group} goes on there")
    return DONE


def parse_target(text: str) -> Target:
    """`first`, `last`, an offset, or a time; one without a zone is of this machine's. Raises CommandError."""
    if text in ("first", "last"):
        return "first" if text == "first" else "last"
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo is not None else moment.astimezone()
        moment.timestamp()
    except (ValueError, OverflowError):
        raise CommandError(
            f"--to {text}: write first, last, an offset such as 1200, or a time such as 2026-01-31T08:00+01:00"
        ) from None
    return moment


def _shown(one: QueueOffset) -> dict[str, Any]:
    return {
        "topic": one.queue.topic,
        "broker": one.queue.broker_name,
        "queue_id": one.queue.queue_id,
        "first_offset": one.held.start,
        "next_offset": one.held.stop,
        "committed_offset": one.committed,
        "lag": one.lag,
    }


def _planned(plan: Plan, *, dry_run: bool) -> dict[str, Any]:
    return {
        "group": plan.group,
        "dry_run": dry_run,
        "live_members": [one.client_id for one in plan.members],
        "queues": [
            {
                "topic": move.queue.topic,
                "broker": move.queue.broker_name,
                "queue_id": move.queue.queue_id,
                "from": move.before,
                "to": move.after,
            }
            for move in plan.moves
        ],
    }
