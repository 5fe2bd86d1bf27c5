"""The Spark job: a stream of orders → revenue per window → a topic. A process of its own, with a Spark of its own.

    ROCKETAPP_CLIENT__NAME_SERVER=127.0.0.1:9876 python -m <package>.job

Each batch that is done is a line of JSON on stdout. SIGTERM ends it; the next run goes on at its checkpoint.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from .app import RUN
from .model import LATEST, ORDERS, REVENUE, WINDOW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

COLUMNS = "id STRING, item STRING, count INT, cents BIGINT, placed_at TIMESTAMP"
"""Of an order."""
SECONDS = 2
"""Between batches. Each costs a fixed part of a second, whatever is in it."""
ATTEMPTS = 3
"""A query that fails is started again, and goes on at its checkpoint: nothing is lost or counted twice."""


def revenue(orders: DataFrame) -> DataFrame:
    """Messages with orders → messages with the revenue of each window that has ended."""
    order = f.from_json(orders["body"].cast("string"), COLUMNS).alias("order")
    return (
        orders.select(order)
        .select("order.*")
        .withWatermark("placed_at", f"{LATEST.total_seconds():.0f} seconds")
        .groupBy(f.window("placed_at", f"{WINDOW.total_seconds():.0f} seconds"))
        .agg(f.count("*").alias("orders"), f.sum("cents").alias("cents"))
        .select(
            f.to_json(f.struct("window.start", "window.end", "orders", "cents")).alias("body"),
            f.date_format("window.start", "yyyy-MM-dd'T'HH:mm").alias("keys"),
        )
    )


def new_session() -> SparkSession:
    """A small one on this machine. On a cluster, spark-submit says what it needs instead."""
    # Workers of Spark run `python3` of the path otherwise, which need not be this one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.appName("revenue")
        .master("local[2]")
        .config("spark.driver.memory", "1g")
        # Java starts with half of the work so. Leave it out where a job runs for long.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )


def start(spark: SparkSession, name_server: str) -> StreamingQuery:
    """The query runs until it is stopped."""
    orders = (
        spark.readStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("subscribe", ORDERS.name)
        .option("startingOffsets", "earliest")
        .option("columns", "body")
        .load()
    )
    return (
        revenue(orders)
        .writeStream.format("rocketmq")
        .option("nameServer", name_server)
        .option("topic", REVENUE.name)
        .option("checkpointLocation", str(RUN / "checkpoint"))
        .outputMode("append")
        .trigger(processingTime=f"{SECONDS} seconds")
        .start()
    )


def follow(query: StreamingQuery, stopping: threading.Event) -> str | None:
    """Tell of each batch until the query ends, or is to end; why it has failed, or None."""
    told = -1
    while query.isActive and not stopping.wait(0.2):
        for progress in query.recentProgress:
            if progress.batchId > told and progress.numInputRows:
                told = progress.batchId
                line = {"batch": told, "rows": progress.numInputRows, "watermark": progress.eventTime.get("watermark")}
                print(json.dumps(line), flush=True)
    problem = query.exception()
    query.stop()
    return None if problem is None else str(problem)


def main() -> int:
    spark = new_session()
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    problem = None
    for _ in range(ATTEMPTS):
        problem = follow(start(spark, os.environ["ROCKETAPP_CLIENT__NAME_SERVER"]), stopping)
        if problem is None or stopping.is_set():
            break
        print(problem, f"the query has failed: {problem.partition(chr(10))[0]}", sep="\n", file=sys.stderr, flush=True)
    spark.stop()
    return 0 if problem is None or stopping.is_set() else 1


if __name__ == "__main__":
    sys.exit(main())
