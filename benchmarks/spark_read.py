"""`python -m benchmarks.spark_read`: `format("rocketmq")` reads a topic of Apache RocketMQ into Spark's noop sink.

Fills four queues with messages of 256 bytes, then reads all of them with many pulls in flight and with one, in turn,
and once without Spark: the puller and decoder alone. Prints rows per second, and rows per CPU second of this process,
its JVM and its workers; the broker's CPU is beside it. The machine's load is printed too: it decides wall times.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import psutil

from pyspark_rocketmq.cluster import Cluster as View
from pyspark_rocketmq.options import read_options
from pyspark_rocketmq.reading import RangePartition, read_partition
from pyspark_rocketmq.resolving import batch_ranges
from tests.peers.clusters import Apache
from tests.peers.loading import Loader, Sent

QUEUES, TOPIC = 4, "bench"


class Figures(NamedTuple):
    """One read."""

    rows: int
    seconds: float
    cpu: float
    broker_cpu: float


def cpu_of(process: psutil.Process, *, below: bool) -> float:
    """CPU seconds of a process, and of the living ones below it if asked for: Spark ends idle workers in between."""
    total = 0.0
    for one in [process, *(process.children(recursive=True) if below else ())]:
        try:
            times = one.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system
    return total


def measured(read: Callable[[], int], broker: int, *, below: bool) -> Figures:
    own, other = psutil.Process(), psutil.Process(broker)
    before, broker_before, began = cpu_of(own, below=below), cpu_of(other, below=False), time.perf_counter()
    rows = read()
    seconds = time.perf_counter() - began
    return Figures(rows, seconds, cpu_of(own, below=below) - before, cpu_of(other, below=False) - broker_before)


def messages(count: int, size: int) -> Iterator[Sent]:
    """With what a producer adds to each."""
    return (Sent(os.urandom(size), tag="t", keys=f"k{n}", unique_id=f"{n:032X}") for n in range(count))


def fill(address: str, count: int, size: int, *, topic: str = TOPIC) -> None:
    loader = Loader(address)
    loader.make_topic(topic, QUEUES)
    for queue_id in range(QUEUES):
        loader.send(topic, queue_id, messages(count // QUEUES, size), at_once=2000)
    loader.close()


def without_spark(name_server: str, depth: int) -> int:
    options = read_options({"nameServer": name_server, "subscribe": TOPIC, "pullDepth": str(depth)}, streaming=False)
    ranges = batch_ranges(View(options.reach), options)
    return sum(batch.num_rows for part in ranges for batch in read_partition(options, RangePartition(part)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_read", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="messages (1000000)")
    parser.add_argument("--size", type=int, default=256, help="bytes of each body (256)")
    parser.add_argument("--rounds", type=int, default=2, help="how often everything is read (2)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rocketapp-spark-read-") as directory:
        broker = Apache(Path(directory), heap="1g")
        try:
            run(broker, arguments)
        finally:
            broker.stop()


def run(broker: Apache, arguments: argparse.Namespace) -> None:
    from pyspark.sql import SparkSession

    fill(broker.broker_address, arguments.count, arguments.size)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    def with_spark(depth: int) -> int:
        options = {"nameServer": broker.name_server, "subscribe": TOPIC, "pullDepth": str(depth)}
        spark.read.format("rocketmq").options(**options).load().write.format("noop").mode("append").save()
        return int(arguments.count)

    ways = {
        "Spark, pullDepth=8": lambda: with_spark(8),
        "Spark, pullDepth=1": lambda: with_spark(1),
        "no Spark, pullDepth=8": lambda: without_spark(broker.name_server, 8),
        "no Spark, pullDepth=1": lambda: without_spark(broker.name_server, 1),
    }
    with_spark(8)
    print(f"{arguments.count} messages of {arguments.size} B, {QUEUES} queues, {os.cpu_count()} cores")
    for _ in range(arguments.rounds):
        for name, read in ways.items():
            found = measured(read, broker.broker_pid, below=name.startswith("Spark"))
            print(
                f"{name:24} {found.rows / found.seconds:10,.0f} rows/s {found.rows / found.cpu:10,.0f} rows/CPU-s  "
                f"broker {found.broker_cpu:5.1f} CPU-s  load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    spark.stop()


if __name__ == "__main__":
    main()
