"""A changed subscription is rolled out under load: three members that want `a || b` are replaced by three that want
`b || c` and one more topic, one by one. Everything that a living member wants has to reach a handler that wants it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

from rocketapp.client.calls.locks import lock
from rocketapp.errors import RocketAppError
from rocketapp.model.message_queue import MessageQueue
from rocketapp.transport.connection import Connection
from rocketapp.transport.tcp import dial_tcp
from tests.faults.members import pause
from tests.faults.scenarios import Figures, end_load, fresh_name
from tests.peers.clusters import Apache, Cluster
from tests.peers.java_client import JavaClient, Load, Peer
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

QUEUES = 8
_APP = """
app = RocketApp("{group}")

@app.on_startup
async def joined() -> None:
    mark("joined")

def done(kind: str, message: Message) -> None:
    mark("done", kind=kind, number=int(message.body.split(b" ", 1)[0]), offset=message.offset)
"""
_KEPT = """
@app.subscribe("{topic}", tags="b", start="first")
async def take_b(message: Message) -> None:
    await asyncio.sleep(0.01)
    done("b", message)
"""
_OLD = f"""{_APP}{_KEPT}
@app.subscribe("{{topic}}", tags="a", start="first", concurrency=8)
async def take_a(message: Message) -> None:
    await asyncio.sleep(0.1)
    done("a", message)
"""
_NEW = f"""{_APP}{_KEPT}
@app.subscribe("{{topic}}", tags="c", start="first")
def take_c(message: Message) -> None:
    time.sleep(0.002)
    done("c", message)

@app.subscribe("{{added}}")
async def take_added(message: Message) -> None:
    done("added", message)
"""


class _Stage:
    """The members, the loads, and what both of them wrote."""

    def __init__(self, cluster: Cluster, peer: Peer, directory: Path, *, guard: str) -> None:
        self.java = JavaClient(peer, cluster.name_server)
        self.topic, self.added, self.group = fresh_name("kept"), fresh_name("added"), fresh_name("group")
        self._cluster, self._directory, self._guard = cluster, directory, guard
        self.log = directory / "history.jsonl"
        self.apps: list[RunningApp] = []
        self.unmatched = 0
        self._loads: dict[str, Load] = {}
        self.stored: dict[str, set[int]] = {}

    def join(self, source: str) -> RunningApp:
        """Start a member; it is ready when this returns."""
        for name in ("topic", "added", "group"):
            source = source.replace(f"{{{name}}}", getattr(self, name))
        place = self._directory / f"member{len(self.apps)}"
        settings = {"ROCKETAPP_CONSUMER__SUBSCRIPTION_CHECK": self._guard}
        app = RunningApp(place, source, self._cluster.name_server, environment=settings, log=self.log)
        self.apps.append(app)
        app.wait_for_count(len(self.apps), "joined", within=40)
        return app

    def leave(self, app: RunningApp) -> None:
        self.unmatched += app.stop(within=60).unmatched

    def load(self, kind: str, rate: int) -> None:
        topic, tag = (self.added, {}) if kind == "added" else (self.topic, {"tag": kind})
        self._loads[kind] = self.java.produce(topic, 10**9, size=64, threads=2, rate=rate, **tag)

    def end_load(self, kind: str) -> None:
        self.stored[kind] = set(end_load(self._loads.pop(kind))["stored"])

    def end_loads(self) -> None:
        for kind in list(self._loads):
            self.end_load(kind)

    def done(self) -> Counter[tuple[str, int]]:
        lines = self.log.read_bytes().split(b"\n")[:-1]
        found = (json.loads(line) for line in lines if b'"done"' in line)
        return Counter((line["kind"], line["number"]) for line in found)

    def missing(self) -> dict[str, int]:
        """By kind how many stored messages were not handled."""
        done = self.done()
        return {
            kind: sum((kind, number) not in done for number in numbers) for kind, numbers in sorted(self.stored.items())
        }

    def passed(self, ends: dict[int, Any]) -> bool:
        """Whether the group has committed all that was there."""
        now = self.java.offsets(self.topic, self.group)
        return all((now[queue]["committed"] or 0) >= (end["max"] or 0) for queue, end in ends.items())

    def discard(self) -> None:
        for load in self._loads.values():
            load.stop()
        for app in self.apps:
            app.discard()

    def describe(self) -> str:
        return f"missing {self.missing()}\n" + "\n".join(f"--- {app.stderr[-1500:]}" for app in self.apps)


def roll_out(cluster: Cluster, peer: Peer, directory: Path, *, guard: str = "roll-out", rate: int = 500) -> Figures:
    """`guard`: `off` is the control, which loses some."""
    stage = _Stage(cluster, peer, directory, guard=guard)
    stage.java.create_topic(stage.topic, QUEUES)
    stage.java.create_topic(stage.added, QUEUES)
    is_control = guard != "roll-out"
    try:
        olds = [stage.join(_OLD) for _ in range(3)]
        stage.load("a", 2 * rate // 3)  # more than three members handle: a backlog is left when the roll-out begins
        stage.load("b", rate // 3)
        pause(10)
        stage.end_load("a")
        backlog = stage.missing()["a"]
        ends = stage.java.offsets(stage.topic, stage.group)
        for old in olds:
            stage.join(_NEW)
            if old is olds[0]:
                stage.load("c", rate // 3)
                stage.load("added", rate // 3)
            pause(3)
            if old is olds[-1]:
                # Until then it is the only one that takes what was removed.
                wait_until(lambda: stage.passed(ends), within=120, what=stage.describe, every=0.5)
            stage.leave(old)
        pause(3)
        stage.end_loads()
        if is_control:
            wait_until(lambda: stage.java.lag(stage.topic, stage.group) == 0, within=60, what=stage.describe, every=0.5)
            pause(15)  # for retries, if any
        else:
            wait_until(lambda: not any(stage.missing().values()), within=60, what=stage.describe, every=0.5)
        for app in stage.apps[3:]:
            stage.leave(app)
    finally:
        stage.discard()
    done, missing = stage.done(), stage.missing()
    figures = {
        "cluster": cluster.name,
        "guard": guard,
        "messages": {kind: len(numbers) for kind, numbers in sorted(stage.stored.items())},
        "backlog_of_a": backlog,
        "lost": missing,
        "unmatched": stage.unmatched,
        "repeated": sum(count > 1 for count in done.values()),
    }
    assert backlog > 0, figures
    if is_control:
        assert sum(missing.values()) > 0, figures
    else:
        assert not any(missing.values()), figures
        assert stage.unmatched == 0, figures
    return figures


_SLOW = f"""{_APP}
{{control}}
@app.subscribe("{{topic}}", tags="c", start="first")
async def take_c(message: Message) -> None:
    mark("started")
    await asyncio.sleep(8)
    done("c", message)
"""
_HELD = """
from rocketapp.consumer.rollout import forward

forward.QUICK = 60.0
"""
_A_SECOND = 50
"""Locks a second that another group asks for."""


def slow_taker(cluster: Apache, peer: Peer, directory: Path, *, seconds: float = 30.0, held: bool = False) -> Figures:
    """Four old members forward to a new one whose handler takes 8 s. How long do locks of another group take?

    `held` is the control: its answers come when its calls have ended, and the broker waits for them.
    """
    stage = _Stage(cluster, peer, directory, guard="roll-out")
    stage.java.create_topic(stage.topic, 2 * QUEUES)
    stage.java.create_topic(stage.added, QUEUES)

    def started() -> int:
        return stage.log.read_bytes().count(b'"started"')

    try:
        for _ in range(4):
            stage.join(_OLD)
        stage.join(_SLOW.replace("{control}", _HELD if held else ""))
        before = asyncio.run(_locks(cluster, stage, 10.0))
        stage.load("c", 40)
        wait_until(lambda: started() >= 40, within=60, what=stage.describe, every=0.2)
        found = asyncio.run(_locks(cluster, stage, seconds))
        stage.end_loads()
        figures = {"cluster": cluster.name, "held": held, "calls": started(), "before": before, "beside": found}
    finally:
        stage.discard()
    # On a busy machine locks take their time anyway.
    is_prompt = found["refused"] == 0 and found["p99_ms"] < max(100.0, 2 * before["p99_ms"])
    assert is_prompt != held, figures
    return figures


async def _locks(cluster: Apache, stage: _Stage, seconds: float) -> Figures:
    """How long a broker takes to lock queues for a group that has nothing to do with the roll-out."""
    connection = Connection(serve=None, max_frame_bytes=1 << 24)
    connection.attach(await dial_tcp(cluster.broker_address, connection, 3.0))
    queues = [MessageQueue(stage.added, cluster.broker_name, number) for number in range(QUEUES)]
    loop, took, refused = asyncio.get_running_loop(), list[float](), 0

    async def one() -> None:
        nonlocal refused
        began = loop.time()
        try:
            refused += await lock(connection, f"{stage.group}-other", "other", queues, 5.0) != set(queues)
        except RocketAppError:
            refused += 1
        took.append(loop.time() - began)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(int(seconds * _A_SECOND)):
            tasks.create_task(one())
            await asyncio.sleep(1 / _A_SECOND)
    await connection.close()
    took.sort()
    p50, p99 = (round(1000 * took[int(share * len(took))], 1) for share in (0.5, 0.99))
    return {"locks": len(took), "refused": refused, "p50_ms": p50, "p99_ms": p99, "longest_ms": round(1000 * took[-1])}
