"""`python -m benchmarks.spark_sink`: a sink lands a topic of Apache RocketMQ in Parquet files, at what cost, how soon.

Cost: four queues with messages of 256 bytes are read by an app with a sink, when another sink of it has warmed Spark
up. Counted is the CPU of the app, its JVM and its workers, without the broker. Beside it, with the same rows: the
sink's writer alone (Arrow stages, Spark writes), and pyarrow alone. Freshness: messages come at a steady rate, and each
is as fresh as the time from its store by the broker to its row in a visible file. The machine's load is printed: it
decides wall times.
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
from typing import IO, Any, NamedTuple

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.processes import cpu_of
from benchmarks.spark_read import QUEUES, fill
from rocketapp import RocketApp
from rocketapp_pyspark.parquet import ParquetStore
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.writing import by_spark
from tests.peers.clusters import Apache
from tests.peers.loading import Loader, Sent

TOPIC, WARM = "bench", "warm"
WARM_ROWS = 40_000
BATCH = 100_000
AT_ONCE = 200
"""Messages of one request of the steady producer."""
PATIENCE = 900.0
"""Seconds for anything that is waited for."""


# The app, in a process of its own.


async def run_app(table: Path, name_server: str, flush_seconds: float) -> None:
    """Reads the topic when a line comes on its standard input, and ends at the next one."""
    os.environ["ROCKETAPP_CLIENT__NAME_SERVER"] = name_server
    app: Any = RocketApp("bench")
    app.sink(WARM, table=table / WARM, flush_seconds=2.0)
    app.sink(TOPIC, table=table / TOPIC, flush_seconds=flush_seconds, flush_rows=BATCH)
    app.pause(TOPIC)
    async with app:
        await asyncio.to_thread(sys.stdin.readline)
        app.resume(TOPIC)
        await asyncio.to_thread(sys.stdin.readline)


class App:
    """That process, seen from here."""

    def __init__(self, table: Path, name_server: str, flush_seconds: float) -> None:
        command = [sys.executable, "-m", "benchmarks.spark_sink", "--app", str(table), name_server, str(flush_seconds)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE)
        self.process = psutil.Process(self._process.pid)
        wait(lambda: rows_in(table / WARM, WARM) == WARM_ROWS, "the first commits")

    def go(self) -> None:
        stdin: IO[bytes] | None = self._process.stdin
        assert stdin is not None
        stdin.write(b"\n")
        stdin.flush()

    def end(self) -> None:
        self.go()
        self._process.wait(120)


def rows_in(table: Path, topic: str) -> int:
    return sum(commit.rows for commit in ParquetStore.log_of(table, f"bench/{topic}"))


def wait(holds: Any, what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)


# The measurements.


class Cost(NamedTuple):
    """Of writing some bytes of bodies."""

    name: str
    megabytes: float
    cpu: float
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.name:34} {self.megabytes / self.cpu:8.1f} MB/CPU-s  {self.megabytes / self.seconds:8.1f} MB/s  "
            f"load {os.getloadavg()[0]:.1f}"
        )


def of_the_sink(directory: Path, broker: Apache, count: int, size: int) -> Cost:
    fill_topic(broker, WARM, WARM_ROWS, size)
    fill_topic(broker, TOPIC, count, size)
    app = App(directory, broker.name_server, 30.0)
    own_before = cpu_of(app.process, below=False)
    before, began = cpu_of(app.process, below=True), time.perf_counter()
    app.go()
    wait(lambda: rows_in(directory / TOPIC, TOPIC) == count, "every row")
    cpu, seconds = cpu_of(app.process, below=True) - before, time.perf_counter() - began
    own = cpu_of(app.process, below=False) - own_before
    app.end()
    print(f"of {cpu:.1f} CPU-s the app used {own:.1f}, {own / count * 1e6:.1f} us a message, and Spark the rest")
    return Cost("topic -> sink -> Parquet", count * size / 1e6, cpu, seconds)


def of_the_writers(directory: Path, table: Path) -> list[Cost]:
    """The same rows, in batches of the same size, without messages."""
    rows = pq.read_table(table)
    batches = [rows.slice(start, BATCH) for start in range(0, rows.num_rows, BATCH)]
    megabytes = rows["body"].combine_chunks().nbytes / 1e6
    spark = Spark("local[2]", {})
    write = by_spark(spark)
    write(batches[0].slice(0, WARM_ROWS), ready(directory / "warm"))

    def with_arrow(batch: pa.Table, target: Path) -> None:
        target.mkdir()
        pq.write_table(batch, target / "part.parquet")

    found = []
    for name, one in (("Arrow -> Spark -> Parquet, no broker", write), ("pyarrow -> Parquet", with_arrow)):
        own, began = psutil.Process(), time.perf_counter()
        before = cpu_of(own, below=True)
        for number, batch in enumerate(batches):
            one(batch, ready(directory / f"{len(found)}-{number}"))
        found.append(Cost(name, megabytes, cpu_of(own, below=True) - before, time.perf_counter() - began))
    spark.stop()
    return found


def ready(directory: Path) -> Path:
    """A place whose parent is there, and itself is not."""
    directory.mkdir(parents=True)
    return directory / "out"


def freshness(directory: Path, broker: Apache, *, rate: int, seconds: float, flush: float, size: int) -> None:
    """Prints how old rows are when they are first seen."""
    fill_topic(broker, WARM, WARM_ROWS, size)
    fill_topic(broker, TOPIC, 0, size)
    app = App(directory, broker.name_server, flush)
    app.go()
    loader, body = Loader(broker.broker_address), os.urandom(size)
    sent, began, seen, ages = 0, time.time(), set[Path](), list[float]()
    while time.time() - began < seconds:
        if sent <= rate * (time.time() - began):
            queue = sent // AT_ONCE % QUEUES
            loader.put(TOPIC, queue, [Sent(body, tag="t", unique_id=f"{sent + n:032X}") for n in range(AT_ONCE)])
            sent += AT_ONCE
        else:
            time.sleep(0.002)
        look(directory / TOPIC, seen, ages)
    reached = sent / (time.time() - began)
    while len(ages) < sent:
        look(directory / TOPIC, seen, ages)
        time.sleep(0.02)
    loader.close()
    app.end()
    ages.sort()
    print(
        f"freshness at {reached:,.0f} messages/s, flush_seconds={flush:g}: p50 {ages[len(ages) // 2]:.1f} s, "
        f"p95 {ages[len(ages) * 95 // 100]:.1f} s, max {ages[-1]:.1f} s, {len(seen)} files, "
        f"load {os.getloadavg()[0]:.1f}"
    )


def look(table: Path, seen: set[Path], ages: list[float]) -> None:
    """Files that were not there before: how old each of their rows is now."""
    new = [file for file in table.glob("*.parquet") if file not in seen] if table.is_dir() else []
    now = time.time()
    for file in new:
        seen.add(file)
        stored = pq.read_table(file, columns=["_rmq_store_ts"])["_rmq_store_ts"].cast(pa.int64())
        ages += [now - micros / 1e6 for micros in stored.to_pylist()]


def fill_topic(broker: Apache, topic: str, count: int, size: int) -> None:
    fill(broker.broker_address, count, size, topic=topic)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_sink", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="messages (1000000)")
    parser.add_argument("--size", type=int, default=256, help="bytes of each body (256)")
    parser.add_argument("--rate", type=int, default=20_000, help="messages per second for freshness (20000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long they come (60)")
    parser.add_argument("--flush", type=float, default=5.0, help="flush_seconds of that sink (5)")
    parser.add_argument("--only", choices=("cost", "freshness"), help="one part (both)")
    parser.add_argument("--app", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.app:
        table, name_server, flush = arguments.app
        asyncio.run(run_app(Path(table), name_server, float(flush)))
        return
    for part in ("cost", "freshness") if arguments.only is None else (arguments.only,):
        with tempfile.TemporaryDirectory(prefix="rocketapp-spark-sink-") as directory:
            broker = Apache(Path(directory) / "broker", heap="1g")
            try:
                measure(part, Path(directory) / "tables", broker, arguments)
            finally:
                broker.stop()


def measure(part: str, directory: Path, broker: Apache, arguments: argparse.Namespace) -> None:
    directory.mkdir()
    if part == "freshness":
        freshness(
            directory,
            broker,
            rate=arguments.rate,
            seconds=arguments.seconds,
            flush=arguments.flush,
            size=arguments.size,
        )
        return
    print(f"{arguments.count} messages of {arguments.size} B, {QUEUES} queues, {os.cpu_count()} cores", flush=True)
    print(of_the_sink(directory, broker, arguments.count, arguments.size), flush=True)
    for cost in of_the_writers(directory / "anchors", directory / TOPIC):
        print(cost, flush=True)


if __name__ == "__main__":
    main()
