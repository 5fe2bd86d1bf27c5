"""`rocketapp dlq`: dead letters, shown, replayed, and tried with the local code."""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rocketapp.admin.cluster import AdminCluster
from rocketapp.admin.dead_letters import StoredDeadLetter, as_delivered, counts, groups_with, newest
from rocketapp.app.settings import Settings
from rocketapp.cli.cluster import ask_cluster, local_time, run_on
from rocketapp.cli.commands.messages import json_of, lines_of
from rocketapp.cli.failure import DONE, FAILED, CommandError
from rocketapp.cli.options import (
    GROUP,
    Seconds,
    app_command,
    app_named,
    cluster_options,
    command_settings,
    json_option,
    name_server_option,
    refuse_empty,
)
from rocketapp.cli.output import Column, counted, printable, show, show_items, table_lines
from rocketapp.cli.processes.operator_requests import told
from rocketapp.cli.replays import GroupReplay, found_letter
from rocketapp.cli.settings import subscriptions_of
from rocketapp.clock import SystemClock
from rocketapp.errors import did_you_mean
from rocketapp.state.tag_table import TagTable

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.declare.declaration import Declaration
    from rocketapp.testing import Published

COUNTS = (Column("GROUP", "group", itemgetter(0)), Column("DEAD LETTERS", "dead_letters", itemgetter(1)))
_PLACE = re.compile(r".+:\d+:\d+")


@click.group("dlq")
def command() -> None:
    """Show dead letters, try them, and replay them."""


@command.command("list", epilog="Example: rocketapp dlq list billing --limit 10")
@click.argument("group", type=GROUP, required=False)
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="Most dead letters to show.")
@cluster_options
def list_command(*, group: str | None, limit: int, as_json: bool) -> int:
    """Show the newest dead letters of GROUP. Without it: how many each group has."""
    if group is None:
        return show_items(COUNTS, ask_cluster(counts), as_json=as_json)

    async def look(cluster: AdminCluster) -> tuple[list[StoredDeadLetter], str]:
        found = await newest(cluster, group, limit)
        return found, "" if found else did_you_mean(group, await groups_with(cluster))

    found, near = ask_cluster(look)
    rows = [
        (one.place, local_time(one.message.stored_ms), one.topic, one.message.message_id, one.attempts, one.reason)
        for one in found
    ]
    lines = table_lines(("PLACE", "DEAD SINCE", "TOPIC", "MESSAGE ID", "ATTEMPTS", "REASON"), rows)
    lines = lines if found else [f"group {group} has no dead letters{near}"]
    return show([_shown(one) for one in found], lines, as_json=as_json)


@command.command("show", epilog="Example: rocketapp dlq show billing broker-a:0:17")
@click.argument("group", type=GROUP)
@click.argument("which")
@cluster_options
def show_command(*, group: str, which: str, as_json: bool) -> int:
    """Show one dead letter with all properties. WHICH is its place or a message id."""
    refuse_empty({"WHICH": which}, is_needed=True)
    found = ask_cluster(lambda cluster: found_letter(cluster, group, which))
    return show(json_of(found.message), lines_of(found.message), as_json=as_json)


def _shown(letter: StoredDeadLetter) -> dict[str, Any]:
    told = {"place": letter.place, "published_in": letter.topic or None}
    return {**json_of(letter.message), **told, "reason": letter.reason or None, "attempts": letter.attempts}


@command.command("replay", epilog="Example: rocketapp dlq replay billing --rate 200")
@click.argument("group", type=GROUP)
@click.option("--rate", type=Seconds(), default=100.0, show_default=True, help="Messages a second; 0 for no limit.")
@click.option("--state", "state_file", metavar="FILE", help="Default: beside the folder of the embedded broker.")
@click.option("--skip", "skipped", metavar="PLACE", multiple=True, help="Pass this one over; may be repeated.")
@click.option("--only", metavar="WHICH", help="Only this one, at once: its place or a message id.")
@click.option("--again", is_flag=True, help="All dead letters that are there, whatever was replayed before.")
@cluster_options
def replay_command(
    *,
    group: str,
    rate: float,
    state_file: str | None,
    skipped: tuple[str, ...],
    only: str | None,
    again: bool,
    as_json: bool,
) -> int:
    """Send the dead letters of GROUP to it again, each once. Ended in any way, the same command goes on."""
    refuse_empty({"--state": state_file, "--only": only})
    if only and (skipped or again):
        raise CommandError("--only excludes --skip and --again: leave it out, or those")
    if state_file and Path(state_file).is_dir():
        raise CommandError(f"--state {state_file}: it is a folder: name a file in it")
    for place in skipped:
        if not _PLACE.fullmatch(place):
            raise CommandError(f"--skip {place}: write a place as rocketapp dlq list shows it, broker-a:0:17")
    replay = GroupReplay(command_settings(), group, state_file)
    told: dict[str, Any] = {"group": group, "state": str(replay.file.path)}
    if only:
        text = replay.one(only)
        return show({**told, "replayed": text}, [text], as_json=as_json)
    try:
        state, near = replay.all(rate=rate, skip=frozenset(skipped), again=again, progress=_progress)
    except KeyboardInterrupt:
        raise CommandError(f"interrupted{replay.how_far()}", FAILED) from None
    line = f"replayed {counted(state.replayed, 'dead letter')} of group {group}; {replay.file.path} says so"
    if state.failed:
        line += f"; {state.failed} failed again, and are dead letters with the new reason"
    if state.perhaps_twice:
        line += f"; perhaps handled twice: {', '.join(state.perhaps_twice)}"
    if not state.ends:
        line = f"group {group} has no dead letters{near}"
    told |= {"replayed": state.replayed, "left": state.left}
    told |= {"failed": state.failed, "perhaps_twice": state.perhaps_twice}
    return show(told, [line], as_json=as_json)


@contextlib.contextmanager
def _progress(count: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, if that is a terminal."""
    if not sys.stderr.isatty() or not count:
        yield lambda done: None
        return
    with click.progressbar(length=count, label="replaying", file=sys.stderr, show_pos=True) as bar:
        yield bar.update


@command.command("try", epilog="Example: rocketapp dlq try app:app broker-a:0:17")
@app_command
@click.argument("which")
@click.option("--group", type=GROUP, help="Whose dead letter it is. Default: the app's group, if it has one only.")
@name_server_option
@json_option
def try_command(*, app: RocketApp, settings: Settings, which: str, group: str | None, as_json: bool) -> int:
    """Try a dead letter with the code of APP. WHICH is its place or a message id. Nothing is published and no
    offset moves; what the handler writes elsewhere is written. Ends with 1 unless the message would be done.
    """
    refuse_empty({"WHICH": which}, is_needed=True)
    chosen = chosen_group(app_named(), sorted({one.group for one in subscriptions_of(app, settings)}), group)
    return run_on(settings, lambda cluster: _try(cluster, app, settings, chosen, which, as_json=as_json))


def chosen_group(app: str, groups: list[str], wanted: str | None) -> str:
    """The group whose dead letter is tried: the one that is named, or the only one. Raises CommandError."""
    if not groups:
        raise CommandError(f"{app}: nothing is subscribed, so no handler could take it: see rocketapp routes {app}")
    if wanted is None and len(groups) != 1:
        raise CommandError(f"{app} has {len(groups)} groups: choose one with --group: {', '.join(groups)}")
    if wanted is not None and wanted not in groups:
        raise CommandError(f"--group {wanted}: {app} has no such group: it has {', '.join(groups)}")
    return wanted or groups[0]


async def _try(
    cluster: AdminCluster, app: RocketApp, settings: Settings, group: str, which: str, *, as_json: bool
) -> int:
    from rocketapp.app.declare.phases import complete
    from rocketapp.testing.calling import prepared, tried

    letter = await found_letter(cluster, group, which)
    published: list[Published] = []
    async with prepared(app, complete(app, settings), SystemClock(), published) as handlers:
        declaration, message = _handler(handlers, group, letter), as_delivered(letter, group)
        (outcome,) = await tried(app, declaration, [message], published)
    handler = declaration.subscription.handler_name
    word, text = told(outcome)
    would_publish = [_published(one) for one in published]
    document = {
        "group": group,
        "place": letter.place,
        "handler": handler,
        "outcome": word,
        "text": text,
        "would_publish": would_publish,
    }
    lines = [f"{handler}: {word}{f': {text}' if text else ''}"]
    lines += (f"would publish to {one['topic']}: {one['body']}" for one in would_publish)
    show(document, map(printable, lines), as_json=as_json)
    return DONE if word in ("done", "skip") else FAILED


def _handler(handlers: list[Declaration], group: str, letter: StoredDeadLetter) -> Declaration:
    known = [(one, one.subscription) for one in handlers]
    for cluster in sorted({sub.cluster for _, sub in known}):  # those of the unnamed one first, which is asked
        where_from = cluster, group, letter.topic
        table = TagTable((one, sub.tags) for one, sub in known if (sub.cluster, sub.group, sub.topic) == where_from)
        (found,) = table.takers([letter.message])
        if found is not None:
            return found
    tag = f" with tag {letter.message.tag}" if letter.message.tag else ""
    where = f"topic {letter.topic}{tag}" if letter.topic else "a topic that it does not name"
    raise CommandError(
        f"dead letter {letter.place} is from {where}, and no handler of group {group} takes that", FAILED
    )


def _published(message: Published) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "tag": message.tag,
        "keys": list(message.keys),
        "properties": dict(message.properties),
        "body": message.body.decode("utf-8", "backslashreplace"),
    }
