"""Dead letters are replayed at a rate; the command is killed in the middle, interrupted, and ends: each comes once."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.faults.scenarios import Figures, Progress, fresh_name, read_history
from tests.peers import toolchain
from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient, Peer
from tests.peers.running_app import RunningApp
from tests.peers.waiting import wait_until

_FAILS = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first", retries=0)
async def take(message: Message) -> None:
    raise ValueError("not today")
"""
_TAKES = """
app = RocketApp("{group}")

@app.subscribe("{topic}", start="first", retries=0)
async def take(message: Message) -> None:
    brief("done", message)
"""


def replay(cluster: Cluster, peer: Peer, directory: Path, *, count: int = 10_000, rate: int = 500) -> Figures:
    """`count` dead letters; `dlq replay` is killed after a third, interrupted after two, then left alone."""
    java, topic, group = JavaClient(peer, cluster.name_server), fresh_name("replay"), fresh_name("group")
    java.create_topic(topic, 4)
    stored = java.produce(topic, count, size=128, threads=8).wait(within=120)["stored"]
    source = _FAILS.replace("{topic}", topic).replace("{group}", group)
    failing = RunningApp(directory / "failing", source, cluster.name_server, "--exit-when-idle", "2")
    try:
        assert failing.wait(within=60 + count / 100).dead_lettered == count
    finally:
        failing.discard()
    source = _TAKES.replace("{topic}", topic).replace("{group}", group)
    app = RunningApp(directory / "taking", source, cluster.name_server)
    progress = Progress(directory / "taking" / "handlers.jsonl")
    began = time.monotonic()
    try:
        lines = [
            _command(directory, cluster, group, rate, until=_sent(directory, count // 3), by=signal.SIGKILL),
            _command(directory, cluster, group, rate, until=_sent(directory, 2 * count // 3)),
            _command(directory, cluster, group, rate),
        ]
        seconds = time.monotonic() - began
        progress.wait(count, within=30, apps=(app,))
        counts = app.stop()
    finally:
        app.discard()
    handled = Counter(event.number for event in read_history(directory / "taking" / "handlers.jsonl"))
    assert sorted(handled) == sorted(stored), f"{len(stored) - len(handled)} lost"
    assert counts.handled == count, f"{counts.handled - count} came twice"
    assert "the same command goes on" in lines[1], lines
    return {
        "cluster": cluster.name,
        "dead_letters": count,
        "rate": rate,
        "lost": len(set(stored) - handled.keys()),
        "replayed_twice": sum(times - 1 for times in handled.values()),
        "seconds": round(seconds, 1),
        "after_ctrl_c": lines[1].replace(str(directory), "DIR"),
        "at_the_end": lines[2].replace(str(directory), "DIR"),
    }


def _command(
    directory: Path,
    cluster: Cluster,
    group: str,
    rate: int,
    *,
    until: Callable[[], bool] | None = None,
    by: signal.Signals = signal.SIGINT,
) -> str:
    """One `dlq replay`, ended by a signal when `until` is true; the last line that it printed."""
    arguments = ("--rate", str(rate), "--state", "state.json", "--name-server", cluster.name_server)
    command = toolchain.rocketapp_command("dlq", "replay", group, *arguments)
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as one:
        if until is not None:
            wait_until(lambda: until() or one.poll() is not None, within=120, what="the replay is on its way")
            one.send_signal(by)
        said, _ = one.communicate(timeout=300)
    assert one.returncode == (0 if until is None else 1 if by is signal.SIGINT else -by), (one.returncode, said)
    return said.strip().rpartition("\n")[2]


def _sent(directory: Path, count: int) -> Callable[[], bool]:
    """Whether the file of the replay says that this number is replayed."""

    def look() -> bool:
        try:
            return int(json.loads((directory / "state.json").read_text())["replayed"]) >= count
        except FileNotFoundError:
            return False

    return look
