"""`rocketapp doctor`: why an app stands still, in the words of its log and of `/ready`, and what mends it.

A running app with `--http` is asked itself. In any case the cluster is asked what it knows of the app's groups.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketapp.cli.failure import DONE, FAILED, CommandError
from rocketapp.cli.options import app_options, refuse_empty

if TYPE_CHECKING:
    from rocketapp.app.app import RocketApp
    from rocketapp.app.settings.settings import Settings
    from rocketapp.model.subscription import Subscription
    from rocketapp.operate.cluster import ClusterLook, GroupState
    from rocketapp.operate.verdict import Finding

SETTLE = 1.0
"""Seconds beyond the commit interval between two looks at a queue that is behind."""


@dataclass(slots=True)
class Diagnosis:
    """All that was found."""

    asked: str = ""
    """The address of the running app; empty when none answered."""
    findings: list[Finding] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    """A line for each group: members, queues, lag."""


@click.command("doctor")
@click.option("--http", metavar="H:P", help="The running app's --http; default: the settings', or this folder's run.")
@click.option("--name-server", metavar="H:P[;H:P]", help="The cluster; default: the settings', or the embedded broker.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@app_options
def command(
    *, app: str, settings: str | None, traceback: bool, http: str | None, name_server: str | None, as_json: bool
) -> int:
    """Say why APP stands still, and what mends it. Ends with 1 when something does."""
    from rocketapp.cli.loader import load_app
    from rocketapp.cli.loop import run_in_loop
    from rocketapp.cli.settings import read_settings, subscriptions_of

    refuse_empty({"--http": http, "--name-server": name_server})
    try:
        loaded = load_app(app)
        tables = {"app": {"http": http}, "client": {"name_server": name_server}}
        given = {table: {key: value for key, value in one.items() if value} for table, one in tables.items()}
        read = read_settings({table: one for table, one in given.items() if one}, file=settings, app=loaded)
        subscriptions = subscriptions_of(loaded, read)
        found = Diagnosis()
        _ask_app(found, loaded, read)
        run_in_loop(_ask_clusters(found, loaded, read, subscriptions), "asyncio")
    except CommandError as error:
        error.traceback = traceback
        raise
    is_well = not any(one.needs_person for one in found.findings)
    _show(found, loaded.name, is_well=is_well, as_json=as_json)
    return DONE if is_well else FAILED


def _show(found: Diagnosis, app: str, *, is_well: bool, as_json: bool) -> None:
    if as_json:
        said = {"app": app, "well": is_well, "http": found.asked or None, "groups": found.groups}
        print(json.dumps({**said, "findings": [asdict(one) for one in found.findings]}, indent=2))
        return
    for one in found.findings:
        print(one.text)
        if one.mend:
            print(f"    {one.mend}")
    for line in found.groups:
        print(line)
    if is_well:
        print(
            f"{app}: nothing stands still"
            if found.asked
            else f"{app}: nothing stands still, as far as its cluster knows"
        )


def _ask_app(found: Diagnosis, app: RocketApp, settings: Settings) -> None:
    """What the running app says of itself. Raises CommandError when the address is another program's."""
    from rocketapp.operate.asking import ask
    from rocketapp.operate.running import read_address
    from rocketapp.operate.verdict import Finding

    given = settings.app.http
    address = given or read_address(Path(settings.broker.dir), app.name)
    if not address:
        return
    try:
        said = ask(address)
    except ValueError as error:
        raise CommandError(f"{address}: {error}") from error
    except OSError as error:
        if given:
            problem = (error.strerror or str(error)).lower()
            text = f"nothing answers at {address}: {problem}"
            mend = "start the app, or see that it runs with this --http"
            found.findings.append(Finding(text=text, mend=mend, needs_person=True))
        return
    if said.app != app.name:
        raise CommandError(f"{address}: the app that answers is {said.app!r}, and not {app.name!r}: give its --http")
    found.asked = address
    found.findings += said.findings


async def _ask_clusters(
    found: Diagnosis, app: RocketApp, settings: Settings, subscriptions: Sequence[Subscription]
) -> None:
    from rocketapp.app.declare.phases import declared_of
    from rocketapp.cli.cluster import connected
    from rocketapp.operate.cluster import ClusterLook
    from rocketapp.operate.verdict import Finding

    declared = declared_of(app)
    for cluster in dict.fromkeys(one.cluster for one in subscriptions):
        own = [one for one in subscriptions if one.cluster == cluster]
        named = replace(settings.client, name_server=declared.clusters[cluster]) if cluster else settings.client
        try:
            async with connected(replace(settings, client=named)) as client:
                await _look(found, ClusterLook(client, settings.client.request_timeout), own, settings)
        except CommandError as error:
            found.findings.append(Finding(text=error.text, needs_person=True))


async def _look(found: Diagnosis, look: ClusterLook, subscriptions: Sequence[Subscription], settings: Settings) -> None:
    from rocketapp.operate.cluster import standing

    topics: dict[str, list[str]] = {}
    for one in subscriptions:
        topics.setdefault(one.group, [])
        if one.topic not in topics[one.group]:
            topics[one.group].append(one.topic)
    states = {group: await look.group(group, some) for group, some in topics.items()}
    behind = {group: state for group, state in states.items() if state.lag and state.members}
    # A running app knows better than its offsets do; of another one they tell whether it goes on.
    if behind and not found.asked:
        seconds = settings.consumer.commit_interval + SETTLE
        await asyncio.sleep(seconds)
        for group, before in behind.items():
            after = states[group] = await look.group(group, topics[group])
            found.findings += standing(before, after, seconds)
    for state in states.values():
        found.findings += state.findings
        found.groups.append(_line(state))


def _line(state: GroupState) -> str:
    def many(count: int, what: str) -> str:
        return f"{count} {what}{'' if count == 1 else 's'}"

    members, queues = many(len(state.members), "member"), many(len(state.queues), "queue")
    return f"group {state.group}: {members}, {queues}, {many(state.lag, 'message')} not committed"
