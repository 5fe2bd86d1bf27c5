"""`python -m benchmarks.spark_read`: `format("rocketmq")` reads a topic of Apache RocketMQ into Spark.

Fills four queues with messages of 256 bytes, then lets each reader take all of them in turn: Spark into its noop sink
with many pulls in flight and with one, Spark into Parquet, the puller and decoder without Spark, and Java's two pull
clients. Prints rows per second, rows per CPU second of the reader (with Spark: of this process, its JVM and its
workers), the broker's CPU, the memory of the largest worker of Spark, and the load of the machine, which decides wall
times. At the end the medians of Spark with many pulls, as multiples of the others.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.processes import Run, compared, java, measured
from benchmarks.runs import Bench
from pyspark_rocketmq.cluster import Cluster as View
from pyspark_rocketmq.options import read_options
from pyspark_rocketmq.reading import RangePartition, read_partition
from pyspark_rocketmq.resolving import batch_ranges
from tests.peers.clusters import Apache
from tests.peers.loading import Loader, Sent
from tests.spark.local import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES, TOPIC = 4, "bench"
OURS = "Spark, pullDepth=8"
GOALS = (("Java, pull", 0.6), ("Java, lite pull", 0.6), ("Spark, pullDepth=1", 3.0))


def messages(count: int, size: int, body: Callable[[int], bytes]) -> Iterator[Sent]:
    """With what a producer adds to each."""
    return (Sent(body(size), tag="t", keys=f"k{n}", unique_id=f"{n:032X}") for n in range(count))


def fill(address: str, count: int, size: int, *, topic: str = TOPIC, body: Callable[[int], bytes] = os.urandom) -> None:
    """`body`: makes one of this size."""
    loader = Loader(address)
    loader.make_topic(topic, QUEUES)
    for queue_id in range(QUEUES):
        loader.send(topic, queue_id, messages(count // QUEUES, size, body), at_once=2000)
    loader.close()


def without_spark(name_server: str, depth: int, pull: int = 32) -> int:
    given = {"nameServer": name_server, "subscribe": TOPIC, "pullDepth": str(depth), "pullBatchSize": str(pull)}
    options = read_options(given, streaming=False)
    ranges = batch_ranges(View(options.reach), options)
    return sum(batch.num_rows for part in ranges for batch in read_partition(options, RangePartition(part)))


def with_spark(spark: SparkSession, name_server: str, depth: int) -> DataFrame:
    options = {"nameServer": name_server, "subscribe": TOPIC, "pullDepth": str(depth)}
    return spark.read.format("rocketmq").options(**options).load()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_read", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="messages (1000000)")
    parser.add_argument("--size", type=int, default=256, help="bytes of each body (256)")
    parser.add_argument("--rounds", type=int, default=2, help="how often everything is read (2)")
    parser.add_argument("--only", action="append", metavar="PREFIX", help="only readers whose names begin so")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rocketapp-spark-read-") as directory:
        broker = Apache(Path(directory), heap="1g")
        try:
            run(broker, arguments, Path(directory))
        finally:
            broker.stop()


def run(broker: Apache, arguments: argparse.Namespace, home: Path) -> None:
    count = int(arguments.count)
    fill(broker.broker_address, count, arguments.size)
    spark, bench = session(), Bench(home / "java")
    frame = partial(with_spark, spark, broker.name_server)

    def noop(depth: int) -> int:
        frame(depth).write.format("noop").mode("append").save()
        return count

    def parquet() -> int:
        frame(8).write.mode("overwrite").parquet(str(home / "rows"))
        return count

    every: dict[str, Callable[[], Run]] = {}
    for name, read in {
        OURS: partial(noop, 8),
        "Spark, pullDepth=1": partial(noop, 1),
        "Spark, Parquet": parquet,
        "no Spark, pullDepth=8": partial(without_spark, broker.name_server, 8),
        "no Spark, pullDepth=1": partial(without_spark, broker.name_server, 1),
    }.items():
        every[name] = partial(measured, read, broker.broker_pid, below=name.startswith("Spark"))
    every["Java, pull"] = partial(java, bench, broker, "pull", TOPIC, "2", "32")
    every["Java, lite pull"] = partial(java, bench, broker, "litepull", TOPIC, str(count), "32")
    there = frame(8).selectExpr("count(DISTINCT queue_id, queue_offset) AS n").collect()[0].n
    assert there == count, f"{there} of {count} messages are read"
    print(f"{count} messages of {arguments.size} B, {QUEUES} queues, {os.cpu_count()} cores", flush=True)
    found: dict[str, list[Run]] = {}
    for _ in range(arguments.rounds):
        for name, way in every.items():
            if not arguments.only or name.startswith(tuple(arguments.only)):
                found.setdefault(name, []).append(way())
                print(found[name][-1].line(name), flush=True)
    spark.stop()
    for name, goal in GOALS:
        if OURS in found and name in found:
            print(compared(found, OURS, name, goal))


if __name__ == "__main__":
    main()
