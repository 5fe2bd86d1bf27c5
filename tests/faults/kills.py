"""What an end leaves behind: messages that were in flight, and calls that others run for a member that ended."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.faults.members import pause
from tests.faults.scenarios import Figures, end_load, fresh_name
from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient, Peer
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

_TWO_HANDLERS = """
app = RocketApp("{group}")

@app.subscribe("{slow}", start="first")
async def take_slow(message: Message) -> None:
    mark("start", kind="slow", number=int(message.body.split(b" ", 1)[0]))
    await asyncio.sleep({seconds})
    mark("done", kind="slow", number=int(message.body.split(b" ", 1)[0]))

@app.subscribe("{quick}", start="first")
async def take_quick(message: Message) -> None:
    mark("start", kind="quick", number=int(message.body.split(b" ", 1)[0]))
"""
IN_FLIGHT = 64


def killed_in_flight(cluster: Cluster, peer: Peer, directory: Path, *, seconds: float = 10.0) -> Figures:
    """An app is killed with 64 calls in flight. How long after its next start does it handle ordinary messages?

    The control is a start of another group, without anything that was in flight.
    """
    java = JavaClient(peer, cluster.name_server)
    slow, quick = fresh_name("slow"), fresh_name("quick")
    for topic in (slow, quick):
        java.create_topic(topic, 4)

    def app_of(name: str) -> RunningApp:
        source = _TWO_HANDLERS.replace("{group}", fresh_name(name)).replace("{seconds}", str(seconds))
        return RunningApp(
            directory / name, source.replace("{slow}", slow).replace("{quick}", quick), cluster.name_server
        )

    java.produce(slow, IN_FLIGHT, size=64).wait(within=60)
    app = app_of("killed")
    try:
        app.wait_for_count(IN_FLIGHT, "start", within=60, kind="slow")
        app.kill()
        in_flight = {event["number"] for event in app.events("start", kind="slow")}
        java.produce(quick, IN_FLIGHT, size=64).wait(within=60)
        more = java.produce(slow, 2 * IN_FLIGHT, size=64).wait(within=60)
        assert more["unknown"] == []
        app.start()
        after = _first_starts(app)
        app.wait_for(
            lambda: len(app.events("done", kind="slow")) >= IN_FLIGHT, within=30 * seconds, what="slow calls end"
        )
    finally:
        app.discard()
    control = app_of("control")
    try:
        usual = _first_starts(control)
    finally:
        control.discard()
    figures = {
        "cluster": cluster.name,
        "in_flight": len(in_flight),
        "first_of_another_handler_s": after["quick"],
        "first_of_the_same_handler_s": after["slow"],
        "control_s": usual,
    }
    assert after["quick"] <= usual["quick"] + 1.0, figures
    assert after["slow"] <= usual["slow"] + 1.0, figures
    return figures


def _first_starts(app: RunningApp) -> dict[str, float]:
    """Seconds from the start of the process to the first two calls of each handler.

    Two: a quarantined message has its turn at once, and ordinary ones are called beside it.
    """

    def found(kind: str) -> list[float]:
        return sorted(event["at"] for event in app.events("start", kind=kind) if event["at"] > app.started_at)

    app.wait_for(lambda: all(len(found(kind)) > 1 for kind in ("slow", "quick")), within=120, what="first calls")
    return {kind: round(found(kind)[1] - app.started_at, 2) for kind in ("slow", "quick")}


_MEMBER = """
app = RocketApp("{group}")

@app.on_startup
async def joined() -> None:
    mark("joined")

async def work(message: Message) -> None:
    brief("start", message)
    await asyncio.sleep({seconds})
    brief("done", message)
"""
_OLD = _MEMBER + '\n@app.subscribe("{topic}", tags="a", start="first", {order})\nasync def take_a(m): await work(m)\n'
_NEW = _OLD + '\n@app.subscribe("{topic}", tags="c", start="first", {order})\nasync def take_c(m): await work(m)\n'
QUEUES = 8


def cut_forward(
    cluster: Cluster, peer: Peer, directory: Path, *, end: str, order: str = "orderly=True", seconds: float = 16.0
) -> Figures:
    """A member forwards messages in order to a new one, and ends (`cut` drain or `kill`) while the call runs there.

    No other member may start a message of such a queue before the forwarded call has ended.
    """
    java = JavaClient(peer, cluster.name_server)
    topic, group, log = fresh_name("order"), fresh_name("group"), directory / "history.jsonl"
    directory.mkdir(parents=True, exist_ok=True)
    java.create_topic(topic, QUEUES)
    apps: list[RunningApp] = []

    def join(source: str) -> RunningApp:
        for name, value in (("topic", topic), ("group", group), ("order", order), ("seconds", str(seconds))):
            source = source.replace(f"{{{name}}}", value)
        app = RunningApp(directory / f"member{len(apps)}", source, cluster.name_server, log=log)
        apps.append(app)
        app.wait_for_count(len(apps), "joined", within=60)
        return app

    def events() -> list[dict[str, Any]]:
        lines = log.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if b'"start"' in line or b'"done"' in line]

    try:
        old = join(_OLD)
        join(_NEW)
        join(_NEW)
        pause(3.0)
        load = java.produce(topic, 10**9, size=64, rate=20, tag="c")
        wait_until(
            lambda: len({event["queue"] for event in events()}) == QUEUES,
            within=90,
            what=lambda: f"a call of each queue runs, those of the old member elsewhere\n{old.describe()}",
            every=0.2,
        )
        if end == "kill":
            old.kill()
        else:
            old.process.send_signal(signal.SIGINT)
            pause(1.0)
            old.process.send_signal(signal.SIGINT)
            assert old.ended(within=20) == 1
        pause(5 * seconds)
        end_load(load)
        found = events()
    finally:
        for app in apps:
            app.discard()
    figures = {"cluster": cluster.name, "end": end, "order": order, **_overlaps(found)}
    assert figures["overlaps"] == 0, figures
    return figures


def _overlaps(events: list[dict[str, Any]]) -> Figures:
    """Calls of one queue that ran beside one another, and the longest such time."""
    running: dict[int, dict[tuple[int, int], float]] = {}
    calls = overlaps = 0
    for event in sorted(events, key=lambda event: event["at"]):
        beside, call = running.setdefault(event["queue"], {}), (event["pid"], event["offset"])
        if event["event"] == "start":
            calls += 1
            overlaps += bool(beside)
            beside[call] = event["at"]
        else:
            beside.pop(call, None)
    return {"calls": calls, "overlaps": overlaps}
