"""A frame is written into a topic, and a task of it and then the broker are killed on the way.

Nothing may be lost: every key has to be in the topic. What was sent twice carries the same stamp twice, so that each
stamp stands for one row.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from pyspark_rocketmq.cluster import CONNECTIONS
from pyspark_rocketmq.cluster import Cluster as View
from pyspark_rocketmq.columns import STAMP
from pyspark_rocketmq.options import read_options
from pyspark_rocketmq.reading import RangePartition, read_partition
from pyspark_rocketmq.resolving import batch_ranges
from tests.peers.clusters import Apache, Embedded
from tests.peers.loading import Loader
from tests.peers.waiting import wait_until
from tests.spark.local import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUEUES, TASKS, TOPIC = 4, 8, "written"
PATIENT = {"sendRetries": "120", "maxBatchBytes": "65536"}
"""A broker takes a while to start again."""


class Kills(threading.Thread):
    """Kills while the main thread writes: Spark finds data sources by name only in the thread that made the session."""

    def __init__(self, spark: SparkSession, broker: Apache | Embedded, count: int) -> None:
        super().__init__(daemon=True)
        self._spark, self._broker, self._count = spark, broker, count
        self._problem: Exception | None = None
        self.failed_tasks = self.broker_killed_at = 0
        self.write_is_over = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            self._await_stored(self._count // 10)
            self.failed_tasks = kill_a_task(self._spark)
            self.broker_killed_at = self._await_stored(self._count // 3)
            self._broker.kill_broker()
            self._broker.start_again()
        except Exception as error:
            self._problem = error

    def result(self) -> None:
        """Wait for its end. Raises what kept it from killing."""
        self.join(120)
        if self._problem is not None:
            raise self._problem

    def _await_stored(self, least: int) -> int:
        """Wait until the topic holds `least` messages; return how many it holds."""
        loader = Loader(self._broker.broker_address)

        def held() -> int:
            return sum(loader.end(TOPIC, queue_id) for queue_id in range(QUEUES))

        wait_until(lambda: held() >= least or self.write_is_over.is_set(), within=600, what=f"{least} messages")
        assert not self.write_is_over.is_set(), "the write was too fast: give more messages"
        found = held()
        loader.close()
        return found


def run(home: Path, count: int, *, apache: bool) -> dict[str, Any]:
    """The figures of one write with both kills."""
    broker = Apache(home / "broker") if apache else Embedded(home / "broker")
    began = time.monotonic()
    try:
        loader = Loader(broker.broker_address)
        loader.make_topic(TOPIC, QUEUES)
        loader.close()
        # Two at a time, and each may fail three times.
        spark = session("local[2,4]")
        try:
            frame = spark.range(0, count, 1, TASKS).selectExpr(
                "rpad(CAST(id AS STRING), 256, 'x') AS body", "concat('k', id) AS keys"
            )
            kills = Kills(spark, broker, count)
            options = {"nameServer": broker.name_server, "topic": TOPIC, **PATIENT}
            frame.write.format("rocketmq").options(**options).mode("append").save()
            kills.write_is_over.set()
            kills.result()
        finally:
            spark.stop()
        keys, stamps = stored(broker.name_server, count)
    finally:
        broker.stop()
    return {
        "broker": broker.name,
        "sent": count,
        "keys": len(keys),
        "stamps": len(stamps),
        "repeats": sum(keys.values()) - len(keys),
        "failed_tasks": kills.failed_tasks,
        "broker_killed_at": kills.broker_killed_at,
        "seconds": round(time.monotonic() - began, 1),
    }


def kill_a_task(spark: SparkSession) -> int:
    """SIGKILL the Python worker that works most; return how many tasks have failed by that."""
    tracker = spark.sparkContext.statusTracker()

    def failed() -> int:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return sum(stage.numFailedTasks for stage in stages if stage is not None)

    workers = [child for child in psutil.Process().children(recursive=True) if is_worker(child)]
    before = {worker: used(worker) for worker in workers}
    threading.Event().wait(0.3)
    max(workers, key=lambda worker: used(worker) - before[worker]).kill()
    wait_until(lambda: failed() > 0, within=60, what="the task fails")
    return failed()


def is_worker(process: psutil.Process) -> bool:
    """Java starts a process that forks the workers; the workers look like it, and it has one parent more."""
    try:
        parent = process.parent()
        return "pyspark.daemon" in process.cmdline() and parent is not None and "pyspark.daemon" in parent.cmdline()
    except psutil.Error:
        return False


def used(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def stored(name_server: str, least: int) -> tuple[Counter[str], Counter[str]]:
    """How often each key and each stamp is in the topic."""
    asked = {"nameServer": name_server, "subscribe": TOPIC, "columns": "keys,properties"}
    options = read_options(asked, streaming=False)
    view = View(options.reach)
    wait_until(
        lambda: sum(part.end - part.start for part in batch_ranges(view, options)) >= least, within=60, what=TOPIC
    )
    keys, stamps = Counter[str](), Counter[str]()
    for part in batch_ranges(view, options):
        for batch in read_partition(options, RangePartition(part)):
            keys.update(batch["keys"].to_pylist())
            stamps.update(dict(row)[STAMP] for row in batch["properties"].to_pylist())
    CONNECTIONS.close()
    return keys, stamps


def is_right(figures: dict[str, Any]) -> bool:
    return bool(figures["keys"] == figures["stamps"] == figures["sent"])
