"""`python -m benchmarks.spark_write`: a frame into a topic of Apache RocketMQ, beside Java's producer.

Spark writes cached rows of 256 bytes with keys and a tag by `format("rocketmq")` from two tasks; Java's producer sends
the same number from as many threads, in lists of 32 messages and in lists of as many as a batch of Spark's holds.
Prints the same figures as `benchmarks.spark_read`. A round counts when the topic holds each message once.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.processes import Run, compared, java, measured
from benchmarks.runs import Bench
from tests.peers.clusters import Apache
from tests.peers.loading import Loader
from tests.peers.waiting import wait_until
from tests.spark.local import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUEUES, TASKS = 4, 2
LISTS = (32, 2000)
OURS, GOAL = "Spark", 0.5


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_write", description=__doc__)
    parser.add_argument("--count", type=int, default=400_000, help="messages (400000)")
    parser.add_argument("--size", type=int, default=256, help="bytes of each body (256)")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is written (3)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rocketapp-spark-write-") as directory:
        broker = Apache(Path(directory), heap="1g")
        try:
            run(broker, Bench(Path(directory) / "java"), arguments)
        finally:
            broker.stop()


class Targets:
    """Topics that were never used, and whether they hold what was written."""

    def __init__(self, broker: Apache, bench: Bench, count: int) -> None:
        self._loader, self._bench, self._count = Loader(broker.broker_address), bench, count

    def new(self) -> str:
        name = self._bench.fresh("write")
        self._loader.make_topic(name, QUEUES)
        return name

    def check(self, topic: str) -> None:
        """Apache stores a message, answers, and then puts it into its queue."""
        ends = partial(map, partial(self._loader.end, topic), range(QUEUES))
        wait_until(lambda: sum(ends()) == self._count, within=60, what=lambda: f"{self._count}, not {list(ends())}")


def rows(spark: SparkSession, count: int, size: int) -> DataFrame:
    """In memory, so that making them is not measured."""
    frame = spark.range(0, count, 1, TASKS).selectExpr(
        f"rpad(CAST(id AS STRING), {size}, 'x') AS body", "concat('k', id) AS keys", "'TagA' AS tags"
    )
    frame = frame.cache()
    assert frame.count() == count
    return frame


def run(broker: Apache, bench: Bench, arguments: argparse.Namespace) -> None:
    count, size = int(arguments.count), int(arguments.size)
    spark, targets = session(), Targets(broker, bench, count)
    frame = rows(spark, count, size)

    def by_spark(topic: str) -> Run:
        def write() -> int:
            frame.write.format("rocketmq").options(nameServer=broker.name_server, topic=topic).mode("append").save()
            return count

        return measured(write, broker.broker_pid, below=True)

    def by_java(batch: int, topic: str) -> Run:
        return java(bench, broker, "produce", topic, str(count), str(size), str(batch), str(TASKS))

    every: dict[str, Callable[[str], Run]] = {
        OURS: by_spark,
        **{f"Java, lists of {batch}": partial(by_java, batch) for batch in LISTS},
    }
    by_spark(targets.new())
    found: dict[str, list[Run]] = {name: [] for name in every}
    print(f"{count} messages of {size} B, {QUEUES} queues, {TASKS} tasks or threads", flush=True)
    for _ in range(arguments.rounds):
        for name, way in every.items():
            topic = targets.new()
            found[name].append(way(topic))
            targets.check(topic)
            print(found[name][-1].line(name), flush=True)
    spark.stop()
    for name in list(found)[1:]:
        print(compared(found, OURS, name, GOAL))


if __name__ == "__main__":
    main()
