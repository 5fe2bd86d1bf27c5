"""What queues cost: a thousand idle ones, handlers that hang beside handlers that work, large messages in backlog."""

from __future__ import annotations

import os
import statistics
from pathlib import Path

from benchmarks.runs import resident_mb
from rocketapp.config.consumer import ConsumerConfig
from tests.faults.members import pause
from tests.faults.scenarios import Figures, fresh_name
from tests.peers.clusters import Cluster
from tests.peers.java_client import JavaClient, Peer
from tests.peers.running_app import RunningApp

IDLE_CPU = 0.02
"""Share of a core that an app may use while its queues have nothing."""
IDLE_BROKER_CPU = 0.01
"""The same of the embedded broker, which holds their pulls."""
BESIDE_HUNG = 0.9
"""Least throughput of a topic beside hung handlers, of what it has alone."""
BEYOND_LIMIT = 100e6
"""Bytes of resident memory beyond the memory limit of an app."""


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> float:
    """The most resident memory that a process ever had, in MB (10^6 bytes), as the kernel counts it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise RuntimeError(f"no VmHWM of {pid}")


_IDLE = """
app = RocketApp("{group}", plugins=[Moves()])

@app.subscribe("{topic}", start="first")
async def take(message: Message) -> None:
    note("done", message)
"""


def idle_queues(cluster: Cluster, peer: Peer, directory: Path, *, queues: int = 1000, seconds: float = 60.0) -> Figures:
    """An app that owns many queues in which nothing happens uses hardly any processor time, nor does its broker."""
    java, topic, group = JavaClient(peer, cluster.name_server), fresh_name("idle"), fresh_name("group")
    java.create_topic(topic, queues)
    app = RunningApp(directory, _IDLE.replace("{topic}", topic).replace("{group}", group), cluster.name_server)
    try:
        app.wait_for_count(queues, "assigned", within=60, topic=topic)
        pause(20)
        pids = (app.process.pid, cluster.broker_pid)
        before = [_processor_seconds(pid) for pid in pids]
        pause(seconds)
        share, of_broker = ((_processor_seconds(pid) - at) / seconds for pid, at in zip(pids, before, strict=True))
        sent = java.send(topic, "last")[0]
        app.wait_for_count(1, "done", within=20)
        figures = {
            "cluster": cluster.name,
            "queues": queues,
            "cpu_percent_of_a_core": round(100 * share, 2),
            "broker_cpu_percent_of_a_core": round(100 * of_broker, 2),
            "resident_mb": round(resident_mb(app.process.pid)),
        }
        assert sent["status"] == "SEND_OK"
        app.stop()
    finally:
        app.discard()
    assert share <= IDLE_CPU, figures
    assert cluster.name == "apache" or of_broker <= IDLE_BROKER_CPU, figures
    return figures


_HUNG = """
HANGING, COUNT = {hanging}, {count}
app = RocketApp("{group}")
go, never = asyncio.Event(), asyncio.Event()
hung = done = 0
began = 0.0

@app.on_startup
async def alone() -> None:
    if not HANGING:
        asyncio.get_running_loop().call_later(4.0, begin)

def begin() -> None:
    global began
    began = time.monotonic()
    go.set()

@app.subscribe("{hung_topic}", group="{group}-hung", start="first")
async def hang(message: Message) -> None:
    global hung
    hung += 1
    if hung == 64:
        mark("hung")
        asyncio.get_running_loop().call_later(4.0, begin)
    await never.wait()

@app.subscribe("{topic}", group="{group}", start="first")
async def take(message: Message) -> None:
    global done
    await go.wait()
    done += 1
    if done == COUNT:
        mark("all", seconds=time.monotonic() - began, hung=hung)
"""


def hung_topic(
    cluster: Cluster, peer: Peer, directory: Path, *, count: int = 300_000, hung: int = 2000, rounds: int = 3
) -> Figures:
    """A topic is drained alone and beside another one whose handlers hang, in turns: the same throughput.

    The hung topic has more bytes in backlog than the memory limit of the app.
    """
    java, topic, hung_name = JavaClient(peer, cluster.name_server), fresh_name("busy"), fresh_name("hung")
    java.create_topic(topic, 4)
    java.create_topic(hung_name, 4)
    for name, number, size in ((topic, count, 200), (hung_name, hung, 100_000)):
        sent = java.produce(name, number, size=size, threads=16, random=True).wait(within=300)
        assert sent["unknown"] == [], sent["first_problem"]
    rates: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        for hanging in (False, True):
            source = _HUNG
            facts = {"{topic}": topic, "{hung_topic}": hung_name if hanging else fresh_name("empty")}
            facts |= {"{group}": fresh_name("group"), "{hanging}": str(hanging), "{count}": str(count)}
            for key, value in facts.items():
                source = source.replace(key, value)
            app = RunningApp(directory / f"{number}-{hanging}", source, cluster.name_server, "--drain-timeout", "1")
            try:
                ended = app.wait_for_count(1, "all", within=90)[0]
                rates[hanging].append(count / ended["seconds"])
                assert ended["hung"] == (64 if hanging else 0), ended
            finally:
                app.kill()
    alone, beside = (statistics.median(rates[hanging]) for hanging in (False, True))
    figures = {
        "cluster": cluster.name,
        "messages": count,
        "alone_per_second": round(alone),
        "beside_64_hung_per_second": round(beside),
        "ratio": round(beside / alone, 2),
    }
    assert beside / alone >= BESIDE_HUNG, (rates, figures)
    return figures


_LARGE = """
app = RocketApp("{group}")
handled = 0

@app.subscribe("{topic}", start="first")
async def take(message: Message) -> None:
    global handled
    handled += 1
    if handled % 50 == 1:
        mark("taken", handled=handled)
    await asyncio.sleep({takes})
"""


def memory(
    cluster: Cluster, peer: Peer, directory: Path, *, queues: int = 1000, each: int = 2, seconds: float = 40.0
) -> Figures:
    """Many queues of 1 MiB messages in backlog, handlers that hang and handlers that are slow: memory stays bounded."""
    java, topic = JavaClient(peer, cluster.name_server), fresh_name("large")
    java.create_topic(topic, queues)
    sent = java.produce(topic, queues * each, size=1_048_576, threads=4, random=True).wait(within=600)
    assert sent["unknown"] == [], sent["first_problem"]
    limit = ConsumerConfig().cache_max_bytes
    figures: Figures = {"cluster": cluster.name, "queues": queues, "messages": queues * each}
    figures["limit_mb"] = round(limit / 1e6)
    for name, takes in (("hung", 3600.0), ("slow", 0.5)):
        source = _LARGE.replace("{topic}", topic).replace("{group}", fresh_name("group")).replace("{takes}", str(takes))
        app = RunningApp(directory / name, source, cluster.name_server, "--drain-timeout", "1")
        try:
            app.wait_for_count(1, "taken", within=60)
            pause(seconds)
            figures[f"{name}_peak_mb"] = round(_peak_mb(app.process.pid))
            figures[f"{name}_handled"] = app.events("taken")[-1]["handled"]
        finally:
            app.kill()
    worst = max(figures["hung_peak_mb"], figures["slow_peak_mb"]) * 1e6
    assert worst <= limit + BEYOND_LIMIT, figures
    assert figures["slow_handled"] > 64, figures
    return figures
