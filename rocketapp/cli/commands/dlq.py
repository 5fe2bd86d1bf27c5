"""`rocketapp dlq`: dead letters, shown, tried with the local code, and replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from rocketapp.cli.asking import ask_cluster, cluster_options, local_time
from rocketapp.cli.commands.dlq_replay import replay_command
from rocketapp.cli.commands.dlq_try import try_command
from rocketapp.cli.commands.message import json_of, print_message
from rocketapp.cli.completing import groups
from rocketapp.cli.failure import DONE, FAILED, CommandError
from rocketapp.cli.options import GROUP, refuse_empty
from rocketapp.cli.output import print_json, say
from rocketapp.cli.tables import print_table
from rocketapp.errors import did_you_mean

if TYPE_CHECKING:
    from rocketapp.admin.cluster import AdminCluster
    from rocketapp.admin.dead_letters import DeadLetter


@click.group("dlq")
def command() -> None:
    """Show dead letters, try them, and replay them."""


command.add_command(try_command)
command.add_command(replay_command)


@command.command(
    "list",
    short_help="Show dead letters, or how many there are.",
    epilog="Example: rocketapp dlq list billing --limit 10",
)
@click.argument("group", type=GROUP, required=False, shell_complete=groups)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most dead letters to show.")
@cluster_options
def list_command(*, group: str | None, limit: int, name_server: str | None, as_json: bool) -> int:
    """Show the newest dead letters of GROUP. Without it: how many each group has."""
    if group is None:
        return _list_groups(name_server, as_json=as_json)
    from rocketapp.admin.dead_letters import groups_with, newest

    async def look(cluster: AdminCluster) -> tuple[list[DeadLetter], str]:
        found = await newest(cluster, group, limit)
        return found, "" if found else did_you_mean(group, await groups_with(cluster))

    found, near = ask_cluster(name_server, look)
    if as_json:
        print_json([_shown(one) for one in found])
        return DONE
    if not found:
        say(f"group {group} has no dead letters{near}")
        return DONE
    rows = [
        (one.place, local_time(one.message.stored_ms), one.topic, one.message.message_id, one.attempts, one.reason)
        for one in found
    ]
    print_table(("PLACE", "DEAD SINCE", "TOPIC", "MESSAGE ID", "ATTEMPTS", "REASON"), rows)
    return DONE


def _list_groups(name_server: str | None, *, as_json: bool) -> int:
    from rocketapp.admin.dead_letters import counts

    found = ask_cluster(name_server, counts)
    if as_json:
        print_json([{"group": group, "dead_letters": count} for group, count in found])
    else:
        print_table(("GROUP", "DEAD LETTERS"), found)
    return DONE


@command.command(
    "show",
    short_help="Show one dead letter with all properties.",
    epilog="Example: rocketapp dlq show billing broker-a:0:17",
)
@click.argument("group", type=GROUP, shell_complete=groups)
@click.argument("which")
@cluster_options
def show_command(*, group: str, which: str, name_server: str | None, as_json: bool) -> int:
    """Show one dead letter with all properties. WHICH is its place or a message id."""
    from rocketapp.admin.dead_letters import find

    refuse_empty({"WHICH": which})
    found = ask_cluster(name_server, lambda cluster: find(cluster, group, which))
    if found is None:
        raise CommandError(f"group {group} has no dead letter {which}: see rocketapp dlq list {group}", FAILED)
    if as_json:
        print_json(json_of(found.message))
    else:
        print_message(found.message)
    return DONE


def _shown(letter: DeadLetter) -> dict[str, Any]:
    told = {"place": letter.place, "published_in": letter.topic or None}
    return {**json_of(letter.message), **told, "reason": letter.reason or None, "attempts": letter.attempts}
