"""`python -m benchmarks.spark_sink`: a sink lands a topic of Apache RocketMQ in Parquet files, at what cost, how soon.

Cost: four queues with messages of 256 bytes are read by an app with a sink, when another sink of it has warmed
everything up; once with files by Spark, and once by Arrow alone. Counted is the CPU of the app, its JVM and its
workers, without the broker. Beside it, with the same rows: the column-wise reader of `format("rocketmq")` by itself,
which pulls and decodes; the sink's writer alone (Arrow stages, Spark writes); and pyarrow alone.

Freshness: messages come at a steady rate, and each is as fresh as the time from its store by the broker to its row in a
visible file. The machine's load is printed: it decides wall times, and makes CPU seconds worth less.

With `--typed` bodies are JSON, which the sink decodes as a msgspec Struct: each field is a column.

With `--page` the costs, of a commit of 1,000 rows and of a session too, are written into rocketapp-lake's COST.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.processes import cpu_of
from benchmarks.spark_read import QUEUES, TOPIC, fill, without_spark
from rocketapp import RocketApp
from rocketapp.cli.runtime import collect_rarely, settle
from rocketapp_lake.parquet import ParquetStore
from rocketapp_lake.staging import STAGING, Files
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.writing import by_spark
from tests.peers.clusters import Apache
from tests.peers.loading import Loader, Sent

LAKE = Path(__file__).parents[1] / "contrib" / "rocketapp-lake"
MIB = 1024 * 1024
WARM = "warm"
WARM_ROWS = 40_000
BATCH = 100_000
AT_ONCE = 200
"""Messages of one request of the steady producer."""
PATIENCE = 900.0
"""Seconds for anything that is waited for."""
WRITERS = ("spark", "arrow")
PULL = 32
"""Messages that a broker gives to one pull, unless it is told otherwise."""


class Order(msgspec.Struct):
    """A typed body."""

    id: int
    customer: str
    amount: float
    is_paid: bool
    note: str


def typed(size: int) -> bytes:
    """An order as JSON of this size."""
    body = msgspec.json.encode(Order(size, "customer-4711", 19.5, True, ""))
    return body[:-2] + os.urandom(size).hex().encode()[: size - len(body)] + body[-2:]


# The app, in a process of its own.


class Commits(logging.Handler):
    """What the log of a sink says of its commits."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, "sink", None) == f"bench/{TOPIC}" and hasattr(record, "commit_seconds"):
            self.records.append(record)

    def told(self) -> str:
        names = ("rows", "seconds", "rows_seconds", "commit_seconds")
        rows, *seconds = (statistics.median(getattr(one, name) for one in self.records) for name in names)
        whole, made, committed = (f"{one:.2f}" for one in seconds)
        cuts = ", ".join(f"{count} by {reason}" for reason, count in Counter(r.reason for r in self.records).items())
        return (
            f"{len(self.records)} commits, cut {cuts}; medians: {rows:,.0f} rows, {whole} s, "
            f"of it rows {made}, commit {committed}"
        )


async def run_app(table: Path, name_server: str, flush_seconds: float, written_by: str, schema: Any) -> None:
    """Reads the topic when a line comes on its standard input, and ends at the next one.

    Python's garbage collector runs as in a process of `rocketapp run`.
    """
    collect_rarely()
    os.environ["ROCKETAPP_CLIENT__NAME_SERVER"] = name_server
    commits, log = Commits(), logging.getLogger("rocketapp.lake")
    log.addHandler(commits)
    log.setLevel("INFO")
    app: Any = RocketApp("bench")
    for topic, flush in ((WARM, 2.0), (TOPIC, flush_seconds)):
        group = f"bench-{topic}-{written_by}"
        options = {
            "group": group,
            "flush_seconds": flush,
            "flush_rows": BATCH,
            "written_by": written_by,
            "schema": schema,
        }
        app.sink(topic, table=table / topic, format="parquet", **options)
    app.pause(TOPIC)
    async with app:
        settle()
        await asyncio.to_thread(sys.stdin.readline)
        app.resume(TOPIC)
        await asyncio.to_thread(sys.stdin.readline)
    print(f"  {commits.told()}", flush=True)


class App:
    """That process, seen from here."""

    def __init__(
        self, table: Path, name_server: str, flush_seconds: float, written_by: str, *, is_typed: bool = False
    ) -> None:
        command = [sys.executable, "-m", "benchmarks.spark_sink", *(["--typed"] if is_typed else [])]
        options = ["--app", str(table), name_server, str(flush_seconds), written_by]
        self._process = subprocess.Popen([*command, *options], stdin=subprocess.PIPE)
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

    def cpu(self) -> tuple[float, float, float]:
        """CPU seconds of all of it, of the process of the app alone, and of its event loop."""
        loop = next((one for one in self.process.threads() if one.id == self.process.pid), None)
        of_loop = 0.0 if loop is None else loop.user_time + loop.system_time
        return cpu_of(self.process, below=True), cpu_of(self.process, below=False), of_loop


def rows_in(table: Path, topic: str) -> int:
    return sum(commit.rows for commit in ParquetStore(table, f"bench/{topic}").commits())


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


def of_the_sink(directory: Path, broker: Apache, given: argparse.Namespace, written_by: str) -> Cost:
    count, size = given.count, given.size
    app = App(directory, broker.name_server, 30.0, written_by, is_typed=given.typed)
    before, began = app.cpu(), time.perf_counter()
    app.go()
    wait(lambda: rows_in(directory / TOPIC, TOPIC) == count, "every row")
    seconds = time.perf_counter() - began
    cpu, own, loop = (after - one for after, one in zip(app.cpu(), before, strict=True))
    app.end()
    of_loop, of_rest, of_spark = (f"{one / count * 1e6:.1f}" for one in (loop, own - loop, cpu - own))
    print(f"  CPU us a message: event loop {of_loop}, other threads of the app {of_rest}, JVM and workers {of_spark}")
    return Cost(f"topic -> sink -> Parquet, {written_by}", count * size / 1e6, cpu, seconds)


def of_the_reader(broker: Apache, count: int, size: int, pull: int) -> Cost:
    """Pulls with eight in flight, and decodes column by column; nothing is written."""
    before, began = cpu_of(psutil.Process(), below=False), time.perf_counter()
    assert without_spark(broker.name_server, 8, pull) == count
    cpu = cpu_of(psutil.Process(), below=False) - before
    return Cost("topic -> Arrow, reader alone", count * size / 1e6, cpu, time.perf_counter() - began)


def of_the_writers(directory: Path, table: Path, megabytes: float) -> Iterable[Cost]:
    """The same rows, in batches of the same size, without messages."""
    rows = pq.read_table(table)
    batches = [rows.slice(start, BATCH) for start in range(0, rows.num_rows, BATCH)]
    spark = Spark("local[2]", {})
    write = by_spark(spark)
    write(batches[0].slice(0, WARM_ROWS), staged(directory / "warm"))

    def with_arrow(batch: pa.Table, files: Files) -> None:
        pq.write_table(batch, files.new("part.parquet"))

    for name, one in (("Arrow -> Spark -> Parquet, no broker", write), ("pyarrow -> Parquet", with_arrow)):
        own, began = psutil.Process(), time.perf_counter()
        before = cpu_of(own, below=True)
        for number, batch in enumerate(batches):
            one(batch, staged(directory / f"{name[:5]}-{number}"))
        yield Cost(name, megabytes, cpu_of(own, below=True) - before, time.perf_counter() - began)
    spark.stop()


def staged(table: Path) -> Files:
    """Of a batch of this table, whose directory is made."""
    (table / STAGING).mkdir(parents=True)
    return Files(table, "batch")


def freshness(directory: Path, broker: Apache, given: argparse.Namespace, written_by: str) -> None:
    """Prints how old rows are when they are first seen."""
    app = App(directory, broker.name_server, given.flush, written_by)
    app.go()
    loader, body = Loader(broker.broker_address), os.urandom(given.size)
    sent, began, seen, ages = 0, time.time(), set[Path](), list[float]()
    while time.time() - began < given.seconds:
        if sent <= given.rate * (time.time() - began):
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
        f"freshness at {reached:,.0f} messages/s, by {written_by}, flush_seconds={given.flush:g}: "
        f"p50 {ages[len(ages) // 2]:.1f} s, p95 {ages[len(ages) * 95 // 100]:.1f} s, max {ages[-1]:.1f} s, "
        f"{len(seen)} files, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )


def look(table: Path, seen: set[Path], ages: list[float]) -> None:
    """Files that were not there before: how old each of their rows is now."""
    new = [file for file in table.glob("*.parquet") if file not in seen] if table.is_dir() else []
    now = time.time()
    for file in new:
        seen.add(file)
        stored = pq.read_table(file, columns=["_rmq_store_ts"])["_rmq_store_ts"].cast(pa.int64())
        ages += [now - micros / 1e6 for micros in stored.to_pylist()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_sink", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="messages (1000000)")
    parser.add_argument("--size", type=int, default=256, help="bytes of each body (256)")
    parser.add_argument("--rate", type=int, default=20_000, help="messages per second for freshness (20000)")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long they come (60)")
    parser.add_argument("--flush", type=float, default=5.0, help="flush_seconds of that sink (5)")
    parser.add_argument("--only", choices=("cost", "freshness"), help="one part (both)")
    parser.add_argument("--written-by", choices=WRITERS, help="one writer of files (both)")
    parser.add_argument("--pull", type=int, default=PULL, help="messages that the broker gives to one pull (32)")
    parser.add_argument("--typed", action="store_true", help="bodies of JSON with a type (random bytes)")
    parser.add_argument("--page", action="store_true", help="write the costs into COST.md")
    parser.add_argument("--app", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.app:
        table, name_server, flush, written_by = given.app
        asyncio.run(run_app(Path(table), name_server, float(flush), written_by, Order if given.typed else None))
        return
    if given.page:
        write_page(given)
        return
    chosen = [one for one in WRITERS if given.written_by in (None, one)]
    for part in ("cost", "freshness") if given.only is None else (given.only,):
        for writers in [chosen] if part == "cost" else [[one] for one in chosen]:
            measure(part, writers, given)


def measure(part: str, writers: list[str], given: argparse.Namespace) -> list[Cost]:
    """On a broker of its own."""
    costs: list[Cost] = []

    def found(cost: Cost) -> None:
        print(cost, flush=True)
        costs.append(cost)

    with tempfile.TemporaryDirectory(prefix="rocketapp-spark-sink-") as name:
        directory = Path(name)
        broker = Apache(directory / "broker", heap="1g")
        try:
            configure(broker, given.pull)
            body = typed if given.typed else os.urandom
            fill(broker.broker_address, WARM_ROWS, given.size, topic=WARM, body=body)
            fill(broker.broker_address, given.count if part == "cost" else 0, given.size, topic=TOPIC, body=body)
            if part == "freshness":
                freshness(directory / "tables", broker, given, writers[0])
                return costs
            print(f"{given.count} messages of {given.size} B, {QUEUES} queues, {os.cpu_count()} cores", flush=True)
            for one in writers:
                found(of_the_sink(directory / one, broker, given, one))
            found(of_the_reader(broker, given.count, given.size, given.pull))
            megabytes = given.count * given.size / 1e6
            for cost in of_the_writers(directory / "anchors", directory / writers[0] / TOPIC, megabytes):
                found(cost)
        finally:
            broker.stop()
    return costs


# The page.

PAGE = LAKE / "COST.md"
COMMITS = 40


def write_page(given: argparse.Namespace) -> None:
    """The tables between the marks of the page."""
    session = of_a_session()
    costs = measure("cost", list(WRITERS), given)
    formats = ("parquet", "delta") if version("pyspark").startswith("4.1.") else ("parquet",)
    commits = [of_a_commit(format, "arrow") for format in ("parquet", "delta", "iceberg")]
    commits += [of_a_commit(format, "spark") for format in formats]
    before, start, rest = PAGE.read_text().partition("<!-- measured -->\n")
    _, end, after = rest.partition("<!-- end -->\n")
    told = [
        f"{given.count:,} messages of {given.size} bytes in {QUEUES} queues of Apache RocketMQ, {given.pull} a pull;",
        f"Python {platform.python_version()}, PySpark {version('pyspark')},",
        f"{os.cpu_count()} cores with a load of {os.getloadavg()[0]:.1f}. CPU is that of all processes but the broker.",
        "",
        "| What | MB a CPU second | CPU a message |",
        "| --- | --- | --- |",
        *(
            f"| {one.name} | {one.megabytes / one.cpu:,.0f} | {one.cpu * given.size / one.megabytes:.1f} µs |"
            for one in costs
        ),
        "",
        f"A commit of 1,000 rows, the median of {COMMITS}, until it is read back:",
        "",
        "| Format | By | Seconds |",
        "| --- | --- | --- |",
        *(f"| {one['format']} | {one['by']} | {one['all']:.2f} |" for one in commits),
        "",
        session,
        "",
    ]
    PAGE.write_text(f"{before}{start}{chr(10).join(told)}{end}{after}")


def of_a_session() -> str:
    """While this process has no JVM yet."""
    spark, began = Spark("local[2]", {}), time.perf_counter()
    session = spark.session()
    there = time.perf_counter() - began
    session.range(1000).selectExpr("sum(id)").collect()
    seconds, below = time.perf_counter() - began, psutil.Process().children(recursive=True)
    held = sum(one.memory_info().rss for one in below) / MIB
    spark.stop()
    return (
        f"A session in `local[2]` was there after {there:.1f} s, and its first job done after {seconds:.1f} s; it held "
        f"{held:,.0f} MiB then."
    )


def of_a_commit(format: str, by: str) -> dict[str, Any]:
    """In a process of its own."""
    command = [sys.executable, str(LAKE / "tests" / "sink" / "commit_cost.py"), "--format", format]
    command += ["--commits", str(COMMITS), *(["--written-by", by] if by == "spark" else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    print(done.stdout.strip(), flush=True)
    found: dict[str, Any] = {**json.loads(done.stdout.splitlines()[-1]), "by": by}
    return found


def configure(broker: Apache, pull: int) -> None:
    """More messages for each pull: the broker has to give them, and the app to ask for them."""
    if pull == PULL:
        return
    loader = Loader(broker.broker_address)
    loader.configure(f"maxTransferCountOnMessageInMemory={pull}\nmaxTransferBytesOnMessageInMemory={pull * 1024}")
    loader.close()
    os.environ["ROCKETAPP_CONSUMER__PULL_BATCH_SIZE"] = str(pull)
    os.environ["ROCKETAPP_CONSUMER__PULL_BATCH_BYTES"] = str(pull * 1024)


if __name__ == "__main__":
    main()
