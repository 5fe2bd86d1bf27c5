"""`rocketapp doctor`: why an app stands still, in the words of its log and of `/ready`, and what mends it.

A running app with `--http` is asked itself. In any case the cluster is asked what it knows of the app's groups.
"""

from __future__ import annotations

import asyncio
import http.client
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import click
import msgspec

from rocketapp.app.app import RocketApp
from rocketapp.app.settings import Settings
from rocketapp.cli.cluster import clusters_of, connected, find_name_server
from rocketapp.cli.failure import DONE, FAILED, CommandError, problem_of
from rocketapp.cli.options import about_settings, app_command, json_option, name_server_option
from rocketapp.cli.output import counted, show
from rocketapp.cli.runtime import run_in_loop
from rocketapp.cli.settings import subscriptions_of
from rocketapp.model.subscription import Subscription
from rocketapp.operate.cluster import ClusterInspector, GroupState, stalled_queues
from rocketapp.operate.health import Finding
from rocketapp.operate.server import parse_address

SETTLE = 1.0
"""Seconds beyond the commit interval until a queue that is behind counts as standing still."""
LOOK_INTERVAL = 0.5
TIMEOUT = 5.0
"""Seconds that an app on the same machine, or near it, may take."""
_MOST_BYTES = 4 * 1024 * 1024
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorAnswer:
    """The answer of a running app to `/doctor`."""

    app: str
    ready: bool
    findings: tuple[Finding, ...]


def ask(address: str) -> DoctorAnswer:
    """Ask a running app over HTTP.

    Raises ValueError for what is not an address and for an answer that no app gives, OSError when none comes.
    """
    host, port = parse_address(address)
    host = _EVERYWHERE.get(host, host)
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    try:
        connection.request("GET", "/doctor")
        response = connection.getresponse()
        body = response.read(_MOST_BYTES)
    except http.client.HTTPException as error:
        raise ValueError(f"what answers is not an app with --http ({type(error).__name__})") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise ValueError(f"what answers is not an app with --http (status {response.status})")
    try:
        return msgspec.json.decode(body, type=DoctorAnswer)
    except msgspec.DecodeError as error:
        raise ValueError("what answers is not an app with --http") from error


@dataclass(slots=True)
class Diagnosis:
    """All that was found."""

    asked: str = ""
    """The address of the running app; empty when none answered."""
    findings: list[Finding] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    """A line for each group: members, queues, lag."""


@click.command("doctor", epilog="Example: rocketapp doctor app:app")
@about_settings("--http", metavar="H:P", help="The running app's --http. Default: the settings'.")
@name_server_option
@json_option
@app_command
def command(*, app: RocketApp, settings: Settings, as_json: bool) -> int:
    """Say why APP stands still, and what mends it. Ends with 1 when something does."""
    subscriptions = subscriptions_of(app, settings)
    found = Diagnosis()
    _ask_app(found, app, settings)
    run_in_loop(_ask_clusters(found, app, settings, subscriptions), "asyncio")
    is_well = not any(one.needs_person for one in found.findings)
    _show(found, app.name, is_well=is_well, as_json=as_json)
    return DONE if is_well else FAILED


def _show(found: Diagnosis, app: str, *, is_well: bool, as_json: bool) -> None:
    said = {"app": app, "well": is_well, "http": found.asked or None, "groups": found.groups}
    lines = [line for one in found.findings for line in (one.text, f"    {one.mend}" if one.mend else "") if line]
    lines += found.groups
    if is_well:
        well = "needs a person" if found.findings else "stands still"
        lines.append(f"{app}: nothing {well}{'' if found.asked else ', as far as its cluster knows'}")
    show({**said, "findings": [asdict(one) for one in found.findings]}, lines, as_json=as_json)


def _ask_app(found: Diagnosis, app: RocketApp, settings: Settings) -> None:
    """What the running app says of itself. Raises CommandError when the address that is given is another program's."""
    address = settings.app.http
    if not address or address.endswith(":0"):  # a free port, which the log of the app names
        return
    try:
        said = ask(address)
    except ValueError as error:
        raise CommandError(f"{address}: {error}") from error
    except TimeoutError:
        text = f"the app at {address} has not answered for {TIMEOUT:g} s: its process is frozen, or gets no time to run"
        mend = "see what holds the process: `ps` shows a stopped one with T, and a busy machine has a long queue"
        found.findings.append(Finding(text=text, mend=mend, seconds=TIMEOUT, needs_person=True))
        return
    except OSError as error:
        text = f"nothing answers at {address}: {problem_of(error)}"
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
    for _, there, own in clusters_of(app, settings, subscriptions):
        if not (found.asked or found.findings):
            await find_name_server(there)  # without one, nothing can be said
        try:
            async with connected(there) as client:
                look = ClusterInspector(client, settings.client.request_timeout, runs=bool(found.asked))
                await _look(found, look, own, settings)
        except CommandError as error:
            found.findings.append(Finding(text=error.text, needs_person=True))


async def _look(
    found: Diagnosis, look: ClusterInspector, subscriptions: Sequence[Subscription], settings: Settings
) -> None:
    topics: dict[str, list[str]] = {}
    for one in subscriptions:
        topics.setdefault(one.group, [])
        if one.topic not in topics[one.group]:
            topics[one.group].append(one.topic)
    # What members of a broadcast group have done, no broker knows.
    broadcast = {one.group for one in subscriptions if one.broadcast}
    states = {group: await look.group(group, some, broadcast=group in broadcast) for group, some in topics.items()}
    behind = {group: state for group, state in states.items() if state.lag and state.members and group not in broadcast}
    if found.asked:
        # A running app knows better than its offsets do whether it goes on; but nothing of what no member has.
        behind = {group: lost for group, state in behind.items() if (lost := await look.unowned(state)).queues}
    if behind:
        await _watch(found, look, behind, states, topics, limit=settings.consumer.commit_interval + SETTLE)
    for state in states.values():
        found.findings += state.findings
        found.groups.append(_line(state, broadcast=state.group in broadcast))


async def _watch(
    found: Diagnosis,
    look: ClusterInspector,
    behind: Mapping[str, GroupState],
    states: dict[str, GroupState],
    topics: Mapping[str, Sequence[str]],
    *,
    limit: float,
) -> None:
    """Look again and again at groups that are behind, until all their queues have moved or the `limit` is over."""
    if sys.stderr.isatty():
        print(f"messages wait: looking for up to {limit:g} s whether they are worked on", file=sys.stderr)
    now = asyncio.get_running_loop().time
    until = now() + limit
    while behind and (left := until - now()) > 0:
        await asyncio.sleep(min(LOOK_INTERVAL, left))
        for group in behind:
            states[group] = await look.group(group, topics[group])
        behind = {group: one for group, one in behind.items() if any(stalled_queues(one, states[group], limit))}
    for group, before in behind.items():
        lost = await look.unowned(states[group])
        found.findings += stalled_queues(before, lost, limit, is_owned=False)
        if not found.asked:
            found.findings += stalled_queues(before, states[group].without(lost), limit)


def _line(state: GroupState, *, broadcast: bool) -> str:
    members, queues = counted(len(state.members), "member"), counted(len(state.queues), "queue")
    left = "each member keeps its own offsets" if broadcast else f"{counted(state.lag, 'message')} not committed"
    return f"group {state.group}: {members}, {queues}, {left}"
