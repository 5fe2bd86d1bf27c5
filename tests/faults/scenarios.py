"""The fault runs. Each starts what it needs, does its damage, checks the history and returns its figures.

`Scale` holds the numbers: small ones within `make test`, the full ones with ROCKETAPP_FAULTS=full or by
`python -m tests.faults`.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults import checker
from tests.faults.checker import Event, Kill
from tests.peers import toolchain
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.java_client import JavaClient, Load, Peer
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until


class Scale(NamedTuple):
    """How much of everything."""

    deliveries: int
    order_rate: int
    order_kills: int
    kills: int
    kill_rate: int


SMALL = Scale(deliveries=500, order_rate=40, order_kills=1, kills=2, kill_rate=80)
FULL = Scale(deliveries=100_000, order_rate=150, order_kills=3, kills=10, kill_rate=1_000)


def scale() -> Scale:
    """What the environment asks for."""
    return FULL if os.environ.get("ROCKETAPP_FAULTS") == "full" else SMALL


Figures = dict[str, Any]

_HANDLER = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first"{options})
{kind} take(message: Message) -> None:
    brief("start", message)
    {pause}
    brief("done", message)
"""


def _source(topic: str, group: str, *, kind: str = "async def", options: str = "", pause: str = "pass") -> str:
    parts = {"{topic}": topic, "{group}": group, "{kind}": kind, "{options}": options, "{pause}": pause}
    source = _HANDLER
    for name, value in parts.items():
        source = source.replace(name, value)
    return source


def read_history(log: Path) -> list[Event]:
    """The events that handlers wrote; half a line at the end is a write that a kill cut off."""
    lines = log.read_bytes().split(b"\n")[:-1]
    return [Event(**json.loads(line)) for line in lines]


class Progress:
    """How many different messages are done, read from the growing log without reading it again and again."""

    def __init__(self, log: Path) -> None:
        self._log, self._at, self._done = log, 0, set[int]()

    def done(self) -> int:
        return len(self.read())

    def read(self) -> set[int]:
        """The numbers of the messages that are done."""
        with self._log.open("rb") as file:
            file.seek(self._at)
            fresh = file.read()
        whole = fresh[: fresh.rfind(b"\n") + 1]
        self._at += len(whole)
        self._done.update(int(line.rsplit(b":", 1)[1][:-1]) for line in whole.splitlines() if b'"done"' in line)
        return self._done

    def wait(self, count: int, *, within: float, apps: tuple[RunningApp, ...]) -> None:
        wait_until(
            lambda: self.done() >= count,
            within=within,
            what=lambda: f"{count} done, there are {self.done()}\n" + "\n".join(app.describe() for app in apps),
            every=0.1,
        )


def fresh_name(kind: str) -> str:
    """A name for a topic or a group that nothing else uses."""
    return f"{kind}-{os.getpid()}-{time.monotonic_ns() % 10**10}"


def deliveries(cluster: Cluster, peer: Peer, directory: Path, size: Scale, *, kind: str, workers: int = 1) -> Figures:
    """Every message of a backlog reaches an async, a sync or an orderly handler exactly once."""
    java, topic, group = JavaClient(peer, cluster.name_server), fresh_name("deliveries"), fresh_name("group")
    java.create_topic(topic, 4)
    load = java.produce(topic, size.deliveries, size=1024, threads=16)
    produced = load.wait(within=600)
    assert produced["unknown"] == [], produced["first_problem"]
    source = _source(
        topic,
        group,
        kind="def" if kind == "sync" else "async def",
        options=", orderly=True" if kind == "orderly" else "",
    )
    arguments = ("--workers", str(workers)) if workers > 1 else ()
    app = RunningApp(directory, source, cluster.name_server, "--exit-when-idle", "1", *arguments)
    try:
        counts = app.wait(within=60 + size.deliveries / 200)
        events = read_history(directory / "handlers.jsonl")
        assert checker.lost(produced["stored"], events) == []
        assert checker.repeated(events) == {}
        assert len(events) == 2 * size.deliveries
        assert counts == (size.deliveries, 0, 0, 0)
        assert java.lag(topic, group) == 0
    finally:
        app.discard()
    seconds = events[-1].at - events[0].at
    return {
        "cluster": cluster.name,
        "handler": kind,
        "workers": workers,
        "messages": size.deliveries,
        "lost": 0,
        "repeated": 0,
        "handled_per_second": round(size.deliveries / seconds),
        "sends_per_second": round(size.deliveries / produced["seconds"]),
    }


def order(cluster: Cluster, peer: Peer, directory: Path, size: Scale) -> Figures:
    """Orderly handlers keep the order of queues and keys while a member is killed and restarted again and again.

    Messages are sent all the while: a queue of a dead member in which nothing is left would never move again.
    """
    java, topic, group, keys = JavaClient(peer, cluster.name_server), fresh_name("order"), fresh_name("group"), 64
    java.create_topic(topic, 8)
    log = directory / "handlers.jsonl"
    source = _source(topic, group, options=", orderly=True", pause="await asyncio.sleep(0.001)")
    directory.mkdir(parents=True, exist_ok=True)
    stays, victim = (RunningApp(directory / name, source, cluster.name_server, log=log) for name in ("stays", "victim"))
    progress, kills, takeovers = Progress(log), list[Kill](), list[float]()
    chance = random.Random(4)
    load = java.produce(topic, 10**9, rate=size.order_rate, order_keys=keys)
    try:
        for _ in range(size.order_kills):
            wanted = progress.done() + 2 * size.order_rate + chance.randrange(100)
            progress.wait(wanted, within=90, apps=(stays, victim))
            _wait_for_queues_of(log, victim, 4, within=90)
            kills.append(_kill(victim))
            victim.start()
            takeovers.append(_takeover(log, kills[-1], within=75, apps=(stays, victim)))
        load_end = end_load(load)
        sent = load_end["stored"]
        progress.wait(len(sent), within=120, apps=(stays, victim))
        for app in (stays, victim):
            app.stop()
        events = read_history(log)
        # The one that was about to be sent when the load was stopped.
        assert len(load_end["unknown"]) <= 1, load_end["first_problem"]
        assert checker.lost(sent, events) == []
        assert checker.phantoms([*sent, *load_end["unknown"]], events) == []
        assert checker.conflicts(events) == []
        assert checker.overtaken(events)[:5] == []
        assert checker.overlapping(events, kills)[:5] == []
        assert checker.keys_out_of_order(events, keys)[:5] == []
        assert checker.unexplained_repeats(events, kills)[:5] == []
        assert java.lag(topic, group) == 0
    finally:
        load.stop()
        stays.discard()
        victim.discard()
    return {
        "cluster": cluster.name,
        "messages": len(sent),
        "kills": len(kills),
        "lost": 0,
        "order_violations": 0,
        "overlaps": 0,
        "repeated": len(checker.repeated(events)),
        "longest_takeover_s": round(max(takeovers), 1),
    }


def _kill(app: RunningApp) -> Kill:
    pid = app.process.pid
    app.kill()
    return Kill(time.monotonic(), pid)


def _queues_of(events: list[Event], pid: int) -> set[int]:
    return {event.queue for event in events if event.pid == pid}


def _wait_for_queues_of(log: Path, app: RunningApp, count: int, *, within: float) -> None:
    """Wait until this member has handled messages of `count` queues: only then a kill hurts."""
    wait_until(
        lambda: len(_queues_of(read_history(log), app.process.pid)) >= count,
        within=within,
        what=lambda: f"pid {app.process.pid} handles {count} queues\n{app.describe()}",
        every=0.5,
    )


def _takeover(log: Path, kill: Kill, *, within: float, apps: tuple[RunningApp, ...]) -> float:
    """Seconds from the kill until all queues of the dead member move again."""
    orphans = _queues_of(read_history(log), kill.pid)

    def first_starts() -> dict[int, float]:
        found: dict[int, float] = {}
        for event in read_history(log):
            if event.queue in orphans and event.at > kill.at and event.pid != kill.pid:
                found.setdefault(event.queue, event.at)
        return found

    wait_until(
        lambda: first_starts().keys() == orphans,
        within=within,
        what=lambda: (
            f"queues {orphans - first_starts().keys()} move again\n" + "\n".join(app.describe() for app in apps)
        ),
        every=0.5,
    )
    return max(first_starts().values()) - kill.at


def _check_losses(load_end: dict[str, Any], events: list[Event]) -> Figures:
    """No acknowledged message is lost, none comes from nowhere, no place holds two."""
    assert checker.lost(load_end["stored"], events) == []
    assert checker.phantoms([*load_end["stored"], *load_end["unknown"]], events) == []
    assert checker.conflicts(events) == []
    return {
        "acknowledged": len(load_end["stored"]),
        "in_doubt": len(load_end["unknown"]),
        "lost": 0,
        "phantoms": 0,
        "conflicts": 0,
        "repeated": len(checker.repeated(events)),
    }


def _under_load(
    cluster: Cluster,
    peer: Peer,
    directory: Path,
    size: Scale,
    damage: Callable[[RunningApp, Progress, random.Random], None],
) -> Figures:
    """Send and consume all the while; do damage `size.kills` times at random moments; check the history."""
    java, topic, group = JavaClient(peer, cluster.name_server), fresh_name("kills"), fresh_name("group")
    java.create_topic(topic, 4)
    # Some messages are in hand at any moment.
    source = _source(topic, group, pause="await asyncio.sleep(0.03)")
    app = RunningApp(directory / "app", source, cluster.name_server)
    log = directory / "app" / "handlers.jsonl"
    progress, chance = Progress(log), random.Random(11)
    load = java.produce(topic, 10**9, size=256, threads=4, rate=size.kill_rate)
    try:
        for _ in range(size.kills):
            progress.wait(progress.done() + size.kill_rate, within=60, apps=(app,))
            damage(app, progress, chance)
        progress.wait(progress.done() + size.kill_rate, within=60, apps=(app,))
        load_end = end_load(load)
        stored = set(load_end["stored"])
        wait_until(
            lambda: not stored - {event.number for event in read_history(log) if event.event == "done"},
            within=60,
            what=lambda: f"all acknowledged messages are handled\n{app.describe()}",
            every=0.5,
        )
        app.stop()
        figures = _check_losses(load_end, read_history(log))
    finally:
        load.stop()
        app.discard()
    return {"cluster": cluster.name, "kills": size.kills, **figures}


def end_load(load: Load) -> dict[str, Any]:
    """Stop sending; returns what was stored and what is in doubt."""
    load.stop()
    return load.wait(within=60)


def broker_kills(peer: Peer, directory: Path, size: Scale) -> Figures:
    """The embedded broker is killed under load and started again: no acknowledged message is lost."""
    broker, pauses, starts = Embedded(directory / "broker"), list[float](), list[float]()

    def damage(_app: RunningApp, progress: Progress, _chance: random.Random) -> None:
        broker.kill_broker()
        broker.start_again()
        up, before = time.monotonic(), progress.done()
        starts.append(broker.seconds_to_serve)
        wait_until(lambda: progress.done() > before, within=40, what="consuming goes on after the kill", every=0.02)
        pauses.append(time.monotonic() - up)

    try:
        figures = _under_load(broker, peer, directory, size, damage)
    finally:
        broker.stop()
    return {**figures, "longest_start_s": round(max(starts), 2), "longest_resume_s": round(max(pauses), 1)}


def consumer_kills(cluster: Cluster, peer: Peer, directory: Path, size: Scale) -> Figures:
    """A consumer is killed under load and started again: no message is lost."""
    pauses: list[float] = []

    def damage(app: RunningApp, progress: Progress, chance: random.Random) -> None:
        progress.wait(progress.done() + chance.randrange(200), within=30, apps=(app,))
        app.kill()
        before = progress.done()
        app.start()
        wait_until(
            lambda: progress.done() > before, within=40, what=lambda: f"it goes on\n{app.describe()}", every=0.02
        )
        pauses.append(time.monotonic() - app.started_at)

    figures = _under_load(cluster, peer, directory, size, damage)
    return {**figures, "longest_resume_s": round(max(pauses), 1)}


def bounce(peer: Peer, directory: Path, size: Scale, *, seconds: float = 5.0) -> Figures:
    """Apache RocketMQ's broker is stopped and started under a running app, which goes on by itself."""
    apache, resumes = Apache(directory / "apache", options=toolchain.BRIEF), list[float]()

    def damage(app: RunningApp, progress: Progress, _chance: random.Random) -> None:
        apache.bounce(seconds)
        up, before = time.monotonic(), progress.done()
        progress.wait(before + 1, within=60, apps=(app,))
        resumes.append(time.monotonic() - up)

    try:
        figures = _under_load(apache, peer, directory, size._replace(kills=1), damage)
    finally:
        apache.stop()
    longest = max(resumes)
    assert longest <= 35, f"consuming went on {longest:.1f} s after the broker served again"
    return {**figures, "away_s": seconds, "resume_s": round(longest, 1)}
