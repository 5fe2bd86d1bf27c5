"""`python -m benchmarks.spark_resources`: what an app with a sink needs while it runs, and how soon it works.

Start: an app begins beside a topic that has messages. Printed is after how long the app is ready, and after how long
the first rows are in the table, for files by Spark and by Arrow; beside it, how long a Spark session and its first job
take by themselves.

Memory: messages come at a steady rate. Printed are the resident memory of the app's process and of its JVM, at most and
how they change: the slope of a line through the second half of the time, when everything has been used once. The limit
of the app's process is twice what a sink holds at most, and 150 MiB.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

import numpy as np
import psutil

from benchmarks.spark_read import QUEUES, fill
from benchmarks.spark_sink import AT_ONCE, PATIENCE, WRITERS, rows_in, wait
from rocketapp import RocketApp
from rocketapp_pyspark.session import Spark
from tests.peers.clusters import Apache
from tests.peers.loading import Loader, Sent

TOPIC, SINK = "bench", "bench/bench"
ROWS = 10_000
"""Messages that are there before the start."""
MIB = 1024 * 1024
BUFFER = 64 * MIB
"""What a sink holds at most by default: half of `consumer.cache_max_bytes`."""
EVERY = 1.0
"""Seconds between two looks at the memory."""


async def run_app(table: Path, name_server: str, written_by: str, flush: float) -> None:
    """Says when it is ready, and ends at a line on its standard input."""
    began = time.perf_counter()
    os.environ["ROCKETAPP_CLIENT__NAME_SERVER"] = name_server
    app: Any = RocketApp("bench")
    group = f"bench-{written_by}-{table.name}"
    options = {"format": "parquet", "written_by": written_by, "flush_seconds": flush}
    app.sink(TOPIC, table=table, group=group, **options)
    async with app:
        print(f"{time.perf_counter() - began:.2f}", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


class App:
    """That process, seen from here."""

    def __init__(self, table: Path, name_server: str, written_by: str, flush: float = 5.0) -> None:
        self.began = time.perf_counter()
        given = [str(table), name_server, written_by, str(flush)]
        command = [sys.executable, "-m", "benchmarks.spark_resources", "--app", *given]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process = psutil.Process(self._process.pid)

    def ready(self) -> float:
        """How long the app took, without the interpreter and its imports."""
        stdout: IO[str] | None = self._process.stdout
        assert stdout is not None
        return float(stdout.readline())

    def end(self) -> None:
        self._process.communicate("\n", timeout=120)


def start(directory: Path, broker: Apache, written_by: str) -> None:
    table = directory / written_by
    app = App(table, broker.name_server, written_by)
    ready, since = app.ready(), time.perf_counter() - app.began
    wait(lambda: rows_in(table, TOPIC) > 0, "the first commit")
    first = time.perf_counter() - app.began
    app.end()
    print(
        f"by {written_by}: ready in {ready:.2f} s, {since:.2f} s after the process was started; "
        f"first rows {first:.1f} s after it; load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def session_alone() -> None:
    """The anchor."""
    began = time.perf_counter()
    spark = Spark("local[2]", {})
    session = spark.session()
    there = time.perf_counter() - began
    session.range(1000).selectExpr("sum(id)").collect()
    print(f"Spark alone: session {there:.1f} s, with its first job {time.perf_counter() - began:.1f} s", flush=True)
    spark.stop()


def memory(directory: Path, broker: Apache, given: argparse.Namespace, written_by: str, before: int) -> int:
    """How many messages the topic has afterwards; `before`: how many it has."""
    table = directory / f"{written_by}-memory"
    app = App(table, broker.name_server, written_by, given.flush)
    app.ready()
    wait(lambda: rows_in(table, TOPIC) > 0, "the first commit")
    loader, noise = Loader(broker.broker_address), os.urandom(MIB)
    sent, began, samples = 0, time.monotonic(), list[tuple[float, float, float]]()
    while (now := time.monotonic() - began) < given.seconds:
        if sent <= given.rate * now:
            places = ((sent + n) * 7919 % (MIB - given.size) for n in range(AT_ONCE))
            bodies = (noise[place : place + given.size] for place in places)  # that no file holds in fewer bytes
            some = [Sent(body, tag="t", unique_id=f"{sent + n:032X}") for n, body in enumerate(bodies)]
            loader.put(TOPIC, sent // AT_ONCE % QUEUES, some)
            sent += AT_ONCE
        else:
            time.sleep(0.01)
        if now >= EVERY * len(samples):
            samples.append((now, resident(app.process), sum(map(resident, app.process.children(recursive=True)))))
    loader.close()
    end = time.monotonic() + PATIENCE
    while rows_in(table, TOPIC) < before + sent and time.monotonic() < end:
        time.sleep(0.5)
    app.end()
    print(f"by {written_by}, {sent / now:,.0f} messages/s for {now:.0f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    for name, column, limit in (("app", 1, 2 * BUFFER / MIB + 150), ("JVM and workers", 2, None)):
        said = "" if limit is None else f", limit {limit:.0f}"
        print(f"  {name:16} at most {max(one[column] for one in samples):6.0f} MiB{said}; {slope(samples, column)}")
    return before + sent


def slope(samples: list[tuple[float, float, float]], column: int) -> str:
    half = np.array(samples[len(samples) // 2 :])
    by_second, _ = np.polyfit(half[:, 0], half[:, column], 1)
    means = ", ".join(f"{one.mean():.0f}" for one in np.array_split(half[:, column], 2))
    return f"slope {by_second * 60:+.2f} MiB a minute; means of the last quarters {means}"


def resident(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / MIB
    except psutil.Error:
        return 0.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_resources", description=__doc__)
    parser.add_argument("--size", type=int, default=256, help="bytes of each body (256)")
    parser.add_argument("--rate", type=int, default=2000, help="messages per second for memory (2000)")
    parser.add_argument("--seconds", type=float, default=600.0, help="how long they come (600)")
    parser.add_argument("--flush", type=float, default=5.0, help="flush_seconds of that sink (5)")
    parser.add_argument("--only", choices=("start", "memory"), help="one part (both)")
    parser.add_argument("--written-by", choices=WRITERS, help="one writer of files (both)")
    parser.add_argument("--app", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.app:
        table, name_server, written_by, flush = given.app
        asyncio.run(run_app(Path(table), name_server, written_by, float(flush)))
        return
    with tempfile.TemporaryDirectory(prefix="rocketapp-spark-resources-") as name:
        directory = Path(name)
        broker = Apache(directory / "broker", heap="1g")
        try:
            fill(broker.broker_address, ROWS, given.size)
            run(directory, broker, given)
        finally:
            broker.stop()


def run(directory: Path, broker: Apache, given: argparse.Namespace) -> None:
    writers = [one for one in WRITERS if given.written_by in (None, one)]
    if given.only != "memory":
        session_alone()
        for one in writers:
            start(directory, broker, one)
    there = ROWS
    for one in writers if given.only != "start" else ():
        there = memory(directory, broker, given, one, there)


if __name__ == "__main__":
    main()
