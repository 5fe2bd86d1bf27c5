"""Two brokers are restarted one after the other under a stream of Spark into Parquet files, while messages come.

The query must not fail, and what its sink committed has each message once. Before Spark 4.2 a query fails when it is
started while a broker is away; one that runs goes on.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from tests.peers.pairs import TOPIC, Pair, apache_pair, embedded_pair
from tests.peers.waiting import wait_until
from tests.spark.local import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery


def run(home: Path, rounds: int, *, apache: bool) -> dict[str, Any]:
    """Restart both brokers so many times; the figures."""
    spark = session()
    try:
        with (apache_pair if apache else embedded_pair)(home / "brokers") as pair:
            return under(spark, pair, home, rounds) | {"broker": pair.brokers[0].name, "spark": spark.version}
    finally:
        spark.stop()


def under(spark: SparkSession, pair: Pair, home: Path, rounds: int) -> dict[str, Any]:
    began, ended, query = time.monotonic(), threading.Event(), start(spark, pair, home)
    rows = Rows(home / "rows")

    def count() -> int:
        assert query.isActive, query.exception()
        return rows.count()

    with ThreadPoolExecutor() as threads:
        feed = threads.submit(pair.feed, ended)
        try:
            for _ in range(rounds):
                pair.restart_each(count)
        finally:
            ended.set()
        feed.result()
    wait_until(lambda: count() >= len(pair.sent), within=120, what="everything is read")
    query.processAllAvailable()
    failed = query.exception()
    query.stop()
    found = Counter(row.body for row in spark.read.parquet(str(home / "rows")).collect())
    return {
        "restarts": 2 * rounds,
        "sent": len(pair.sent),
        "lost": len({*pair.sent} - {*found}),
        "doubled": sum(found.values()) - len(found),
        "failed": failed and str(failed).partition("\n")[0],
        "seconds": round(time.monotonic() - began, 1),
    }


def start(spark: SparkSession, pair: Pair, home: Path) -> StreamingQuery:
    options = {"nameServer": pair.name_server, "subscribe": TOPIC, "startingOffsets": "earliest"}
    return (
        spark.readStream.format("rocketmq")
        .options(**options)
        .load()
        .selectExpr("broker", "queue_offset", "CAST(body AS STRING) AS body")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(processingTime="500 milliseconds")
        .start(str(home / "rows"))
    )


class Rows:
    """Those of the files that are whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._counts: dict[Path, int] = {}

    def count(self) -> int:
        for file in self._folder.glob("part-*"):
            if file not in self._counts and file.stat().st_size:
                self._counts[file] = pq.read_metadata(file).num_rows
        return sum(self._counts.values())


def is_right(figures: dict[str, Any]) -> bool:
    return not (figures["lost"] or figures["doubled"] or figures["failed"])
