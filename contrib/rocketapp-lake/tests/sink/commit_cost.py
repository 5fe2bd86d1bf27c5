"""What a commit of a thousand rows costs, from the batch to the answer that it is there.

    python commit_cost.py --format sql --commits 20
    python commit_cost.py --format delta --commits 3000 --queues 16 --compact-every 120

The last line is a JSON object: seconds of each part, the median of all commits but the first three. Above it is the CPU
of a commit, from the hundredth on and at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from targets import JARS, SINK, target

from rocketapp import MessageQueue
from rocketapp_lake.declared import Sink
from rocketapp_lake.formats import FORMATS
from rocketapp_lake.options import TARGET_FILE_SIZE
from rocketapp_lake.positions import Span
from rocketapp_lake.records import Commit
from rocketapp_lake.settings import LakeConfig
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.writing import SparkWriter

ROWS = 1000
SEEN = 100
"""Commits from the hundredth on, and at the end, whose CPU is told: as many as Delta makes between two checkpoints,
because a commit costs more the more of them lie behind the last one."""


def rows_from(queue: MessageQueue, start: int) -> pa.Table:
    return pa.table(
        {
            "body": pa.array([b"x" * 256] * ROWS),
            "_rmq_topic": [queue.topic] * ROWS,
            "_rmq_broker": [queue.broker_name] * ROWS,
            "_rmq_queue": pa.array([queue.queue_id] * ROWS, pa.int32()),
            "_rmq_offset": range(start, start + ROWS),
        }
    )


def commit_once(store: Any, number: int, vector: dict[MessageQueue, int]) -> dict[str, float]:
    """To the queues in turn; all positions are in each commit."""
    queue = list(vector)[number % len(vector)]
    batch, start = uuid.uuid4().hex, vector[queue]
    rows, used, began = rows_from(queue, start), time.process_time(), time.perf_counter()
    vector[queue] = end = start + ROWS
    spans = {queue: Span(start, end)}
    commit = Commit(sink=SINK, sequence=number + 1, batch=batch, spans=spans, vector=dict(vector), rows=ROWS)
    store.commit(commit, rows)
    committed = time.perf_counter()
    assert store.who_committed(number + 1) == batch
    read = time.perf_counter()
    return {
        "commit": committed - began,
        "read_back": read - committed,
        "all": read - began,
        "cpu": time.process_time() - used,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", default="parquet")
    parser.add_argument("--commits", type=int, default=20)
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--compact-every", type=int, help="commits behind which files are put together (never)")
    parser.add_argument("--written-by", choices=("spark", "arrow"))
    given = parser.parse_args(arguments)
    writer = None
    if given.written_by == "spark":
        writer = SparkWriter(Spark("local[2]", {"spark.driver.extraClassPath": JARS}))
    with tempfile.TemporaryDirectory() as directory, target(Path(directory), given.format, False) as table:
        keywords = {**table.options(), **({"written_by": given.written_by} if given.written_by else {})}
        sink = Sink.of("shop", "orders", {**keywords, "format": given.format, "name": SINK}, "here")
        store = FORMATS[given.format].new_store(sink, LakeConfig(), writer)
        vector = {MessageQueue("orders", "broker-a", queue): 0 for queue in range(given.queues)}
        costs, compacted = [], 0.0
        for number in range(given.commits):
            costs.append(commit_once(store, number, vector))
            if given.compact_every and not (number + 1) % given.compact_every:
                used = time.process_time()
                store.compact(TARGET_FILE_SIZE)
                compacted += time.process_time() - used
        costs = costs[3:]
        there = len(table.rows())
    if writer is not None:
        writer.stop()
    if given.commits > 2 * SEEN:
        for where, some in (("early", costs[100:][:SEEN]), ("late", costs[-SEEN:])):
            cpu = [one["cpu"] for one in some]
            print(f"CPU of a commit, {where}: median {statistics.median(cpu):.4f} s, mean {statistics.mean(cpu):.4f} s")
        print(f"CPU of all commits: {sum(one['cpu'] for one in costs):.1f} s, of compactions: {compacted:.1f} s")
    medians = {name: round(statistics.median(cost[name] for cost in costs), 3) for name in costs[0]}
    load = round(os.getloadavg()[0], 1)
    about_run = {"format": given.format, "by": given.written_by, "commits": given.commits, "rows": there, "load": load}
    print(json.dumps({**about_run, **medians}))
    return 0 if there == given.commits * ROWS else 1


if __name__ == "__main__":
    sys.exit(main())
