"""Dead letters are replayed at a rate; the command is killed in the middle, interrupted, and ends: each comes once."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


_IN_ORDER = """
app = RocketApp("{group}")

def take(message):
    {does}

@app.subscribe("{topic}-queues", start="first", retries=0, orderly=True)
async def by_queue(message: Message) -> None:
    take(message)

@app.subscribe("{topic}-keys", start="first", retries=0, order_by="key")
async def by_key(message: Message) -> None:
    take(message)

@app.subscribe("{topic}-free", start="first", retries=0)
async def freely(message: Message) -> None:
    take(message)
"""
MOST_TWICE = 8
"""Letters that are under way at members at one time, and so at one kill."""


def replay_to_members(
    cluster: Cluster, peer: Peer, directory: Path, *, count: int = 2_000, rate: int = 100, kills: int = 5
) -> Figures:
    """Dead letters of orderly, keyed and concurrent handlers of one group; `dlq replay` is killed again and again.

    The group holds queue locks, so its members are asked to handle each letter. What came twice was under way at a
    kill, and the command names it.
    """
    java, topic, group = JavaClient(peer, cluster.name_server), fresh_name("replay"), fresh_name("group")
    topics = [f"{topic}-{kind}" for kind in ("queues", "keys", "free")]
    for one in topics:
        java.create_topic(one, 4)
    stored = {
        (one, number)
        for one in topics
        for number in java.produce(one, -(-count // 3), size=128, threads=8).wait(within=120)["stored"]
    }
    source = _IN_ORDER.replace("{topic}", topic).replace("{group}", group)
    failing = RunningApp(
        directory / "failing",
        source.replace("{does}", 'raise ValueError("not today")'),
        cluster.name_server,
        "--exit-when-idle",
        "2",
    )
    try:
        assert failing.wait(within=60 + count / 50).dead_lettered == len(stored)
    finally:
        failing.discard()
    of_place = {
        letter["place"]: (letter["published_in"], _number(letter["body"]))
        for letter in _letters(directory, cluster, group)
    }
    assert set(of_place.values()) == stored
    takes = 'mark("done", topic=message.topic, text=message.text(), attempt=message.attempt)'
    app = RunningApp(directory / "taking", source.replace("{does}", takes), cluster.name_server)
    named = set[str]()
    try:
        app.wait_for(lambda: "started" in app.stderr, within=30, what="it runs")
        for kill in range(1, kills + 1):
            until = _sent(directory, kill * len(stored) // (kills + 1))
            _command(directory, cluster, group, rate, until=until, by=signal.SIGKILL)
            named |= _perhaps_twice(directory)
        last = _command(directory, cluster, group, rate)
        named |= _perhaps_twice(directory)
        app.wait_for_count(len(stored), within=30)
        counts = app.stop()
    finally:
        app.discard()
    handled = Counter((event["topic"], _number(event["text"])) for event in app.events("done"))
    twice = {letter for letter, times in handled.items() if times > 1}
    assert stored == handled.keys(), f"{len(stored - handled.keys())} lost"
    assert twice <= {of_place[place] for place in named}, "came twice, and are not named"
    assert max(handled.values()) <= 2 and len(named) <= kills * MOST_TWICE, (handled.most_common(3), named)
    assert (counts.dead_lettered, counts.retried) == (0, 0)
    spent = len(_letters(directory, cluster, group)) - len(of_place)
    assert spent == 0, f"{spent} letters became dead letters again"
    return {
        "cluster": cluster.name,
        "dead_letters": len(stored),
        "kills": kills,
        "lost": len(stored - handled.keys()),
        "spent": spent,
        "handled_twice": len(twice),
        "named": len(named),
        "at_the_end": last.replace(str(directory), "DIR"),
    }


def _number(body: str) -> int:
    return next(int(word) for word in body.split(" ")[:2] if word.isdigit())


def _letters(directory: Path, cluster: Cluster, group: str) -> list[dict[str, Any]]:
    arguments = ("--limit", "100000", "--json", "--name-server", cluster.name_server)
    command = toolchain.rocketapp_command("dlq", "list", group, *arguments)
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def _perhaps_twice(directory: Path) -> set[str]:
    return set(json.loads((directory / "state.json").read_text()).get("perhaps_twice", ()))


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
