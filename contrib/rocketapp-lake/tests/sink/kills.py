"""Kills an app with a sink, and counts what its table lacks and what it has twice.

    python kills.py --kills 30                      at random moments, each after two commits, into a Delta table
    python kills.py --kills 30 --format parquet     into Parquet files; also `iceberg`, `sql` (PostgreSQL),
                                                    and on an S3 server `s3-delta` and `s3-iceberg`
    python kills.py --kills 30 --written-by spark   by Spark: Delta with PySpark 4.1, Parquet with any
    python kills.py --kills 30 --naive              the control: a handler that appends its batch, and then returns;
                                                    to Parquet files, or with --format to `iceberg` or `sql`
    python kills.py --freezes 20                    of two apps one is stopped past its lock, and woken again, in turn
    python kills.py --jvm-kills 3                   the JVM of Spark alone: the app goes on and starts another one
    python kills.py --points                        at each named point of a commit
    python kills.py --kills 30 --compact            while small files of a Delta table are put together all the time

The last line is a JSON object; the exit code is 1 when a message is lost or twice there (with --naive: when none is
twice). The broker is an embedded one in this process. The app is a process group of its own, killed as a whole.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pyarrow as pa
import sqlalchemy as sa
from pyiceberg.table import Transaction
from sink_shop import Placed
from targets import COLUMNS, JARS, Target, target

from rocketapp import Message, RocketApp, SendUnknown
from rocketapp.config.broker import BrokerConfig
from rocketapp.testing.broker import serving
from rocketapp_lake import LakePlugin, sql
from rocketapp_lake.delta import DeltaStore
from rocketapp_lake.iceberg import catalog_of
from rocketapp_lake.parquet import ParquetLog, ParquetStore
from rocketapp_lake.sql import SqlStore
from rocketapp_lake.staging import Files
from rocketapp_lake.writing import by_arrow
from rocketapp_pyspark.session import Spark
from rocketapp_pyspark.writing import by_spark
from tests.peers.forks import Fork

TOPIC = "orders"
BROKER = BrokerConfig(lock_expiry=1.0, client_expiry=2.0)
"""It gives the queues of a process that is dead or stopped to another one within seconds, instead of minutes."""
FREEZE = 4.0
"""Seconds: longer than that. A client trusts its locks for 30 s: the one that wakes believes to own its queues."""
BEGAN = time.monotonic()
IMPORTED = (
    *("dynaconf", "pyarrow.dataset", "pyiceberg.table", "rocketapp.app.run.lifecycle", "rocketapp.testing.broker"),
    *("rocketapp_lake", "rocketapp_lake.delta", "rocketapp_lake.iceberg", "rocketapp_lake.parquet"),
    *("rocketapp_lake.sql", "rocketapp_pyspark.session", "rocketapp_pyspark.writing", "sqlalchemy"),
)
"""What an app that is killed need not import again."""
PATIENCE = 300.0
"""Seconds for anything that is waited for."""


# The app that is killed.


def die() -> None:
    os.killpg(0, signal.SIGKILL)


def die_at(how: str, point: str) -> None:
    """The second commit of this process ends at this point."""
    {"delta": die_at_delta, "iceberg": die_at_iceberg, "sql": die_at_sql, "parquet": die_at_file}[
        how.removeprefix("s3-")
    ](point)


def die_at_delta(point: str) -> None:
    store: Any = DeltaStore
    write, calls = store._write, Counter[str]()

    def dying_write(self: Any, *given: Any) -> None:
        calls["writing"] += 1
        if point == "writing" and calls["writing"] == 2:
            die()
        write(self, *given)
        if point == "committed" and calls["writing"] == 2:
            die()

    store._write = dying_write


def die_at_iceberg(point: str) -> None:
    transaction: Any = Transaction
    commit, calls = transaction.commit_transaction, Counter[str]()

    def dying_commit(self: Any) -> Any:
        if type(self) is not Transaction:
            return commit(self)
        calls["commits"] += 1
        if point == "written" and calls["commits"] == 2:
            die()
        done = commit(self)
        if point == "committed" and calls["commits"] == 2:
            die()
        return done

    transaction.commit_transaction = dying_commit


def die_at_sql(point: str) -> None:
    store: Any = SqlStore
    fence, commit, load = store._fence, store.commit, sql.halved
    calls: Counter[str] = Counter()

    def is_due(at: str) -> bool:
        calls[at] += 1
        return at == point and calls[at] == 2

    def dying_fence(self: Any, *given: Any) -> None:
        fence(self, *given)
        if is_due("fenced"):
            die()

    def dying_load(*given: Any) -> Any:
        found = load(*given)
        if is_due("loaded"):
            die()
        return found

    def dying_commit(self: Any, *given: Any) -> None:
        commit(self, *given)
        if is_due("committed"):
            die()

    store._fence, store.commit, sql.halved = dying_fence, dying_commit, dying_load


def die_at_file(point: str) -> None:
    store: Any = ParquetStore
    log: Any = ParquetLog
    commit, publish, create, done = store.commit, store._publish, log.create, log.done
    calls: Counter[str] = Counter()

    def is_due(at: str) -> bool:
        calls[at] += 1
        return at == point and calls[at] == 2

    def dying_commit(self: Any, one: Any, rows: Any) -> None:
        if is_due("buffering"):
            die()
        if rows is not None and is_due("staging"):
            self._staging.write(rows, Files(self.path, one.batch))
            die()
        commit(self, one, rows)
        if is_due("published"):
            die()

    def dying_publish(self: Any, one: Any, staged: Any) -> None:
        if is_due("staged"):
            die()
        publish(self, one, staged)

    def dying_create(self: Any, sequence: int, content: bytes) -> None:
        create(self, sequence, content)
        if is_due("linked"):
            die()

    def dying_done(self: Any, sequence: int) -> None:
        if is_due("moved"):
            die()
        done(self, sequence)

    store.commit, store._publish = dying_commit, dying_publish
    log.create, log.done = dying_create, dying_done


def run_app(how: str, point: str, is_naive: bool, written_by: str) -> None:
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if point:
        die_at(how, point)
    plugins = [] if entry_points(group="rocketapp", name="lake") else [LakePlugin()]
    app: Any = RocketApp("shop", plugins=plugins)
    options = json.loads(os.environ["KILLS_SINK"])
    if is_naive:
        append(app, appending(how, written_by, options))
    else:
        options |= {"written_by": written_by} if how in ("parquet", "delta") else {}
        app.sink(TOPIC, format=how.removeprefix("s3-"), **{"flush_seconds": 0.3, **options})
    asyncio.run(until_killed(app))


def appending(how: str, written_by: str, options: dict[str, Any]) -> Callable[[pa.Table], None]:
    """What stores a batch at once."""
    table = options.pop("table")
    if how == "sql":
        return inserting(table, options["url"])
    if how == "iceberg":
        return committing(table)
    write = by_arrow() if written_by == "arrow" else by_spark(Spark("local[2]", {}))
    return lambda rows: write(rows, Placed(Path(table) / f"{time.time_ns()}"))


def inserting(table: str, url: str) -> Callable[[pa.Table], None]:
    engine = sa.create_engine(url)
    columns = [sa.Column(name, sa.LargeBinary if name == "body" else sa.Text) for name in COLUMNS]
    target = sa.Table(table, sa.MetaData(), *columns)
    target.create(engine, checkfirst=True)

    def insert(rows: pa.Table) -> None:
        with engine.begin() as connection:
            connection.execute(sa.insert(target), [{**row, **_places(row)} for row in rows.to_pylist()])

    return insert


def committing(table: str) -> Callable[[pa.Table], None]:
    """By pyiceberg alone, which makes each batch a snapshot."""
    new_catalog, name = catalog_of(table)

    def commit(rows: pa.Table) -> None:
        catalog = new_catalog()
        catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
        catalog.create_table_if_not_exists(name, rows.schema).append(rows)

    return commit


def _places(row: dict[str, Any]) -> dict[str, str]:
    return {name: str(row[name]) for name in COLUMNS[:4]}


def append(app: RocketApp, write: Callable[[pa.Table], None]) -> None:
    """What is often written: store the batch, then return."""

    @app.subscribe(TOPIC, batch=500, batch_wait=0.3, start="first", concurrency=1)
    def store(messages: list[Message]) -> None:
        columns = {
            "_rmq_topic": [message.topic for message in messages],
            "_rmq_broker": [message.queue.broker_name for message in messages if message.queue],
            "_rmq_queue": [message.queue_id for message in messages],
            "_rmq_offset": [message.offset for message in messages],
            "body": [message.body for message in messages],
        }
        write(pa.table(columns))


async def until_killed(app: RocketApp) -> None:
    async with app:
        await asyncio.Event().wait()


# The one who kills.


class Run:
    """Starts apps one after the other on one broker, and kills them."""

    def __init__(self, directory: Path, how: str, written_by: str, table: Target, seed: int, is_naive: bool) -> None:
        self.table, self.how, self.written_by, self.is_naive = table, how, written_by, is_naive
        self.random = random.Random(seed)
        self.errors = directory / "app.log"
        self.process: Fork | None = None
        self.pair: list[Fork] = []

    def start(self, point: str = "") -> None:
        arguments = ["--app", "--format", self.how, "--point", point, "--written-by", self.written_by]
        arguments += ["--naive"] if self.is_naive else []
        with self.errors.open("ab") as log:
            self.process = Fork(
                arguments,
                directory=Path.cwd(),
                environment=os.environ,
                out=log,
                err=log,
                new_session=True,
                program=[__file__],
                imported=IMPORTED,
            )

    def kill(self) -> None:
        assert self.process is not None
        for process in {*self.pair, self.process}:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def commits(self) -> int:
        return self.table.commits()

    async def until(self, what: str, holds: Any, pause: float = 0.05) -> None:
        end = time.monotonic() + PATIENCE
        while not await asyncio.to_thread(holds):  # the broker goes on meanwhile
            if time.monotonic() > end:
                raise TimeoutError(f"{what}: not within {PATIENCE:g} s\n{self.errors.read_text()[-4000:]}")
            await asyncio.sleep(pause)

    async def kill_at_random(self) -> None:
        """After two commits, somewhere within the next one."""
        before = self.commits()
        self.start()
        await self.until("two commits", lambda: self.commits() >= before + 2)
        await asyncio.sleep(self.random.random() * 1.5)
        self.kill()

    def start_second(self) -> None:
        """Beside the first one."""
        first = self.process
        assert first is not None
        self.start()
        assert self.process is not None
        self.pair = [first, self.process]

    async def freeze(self, number: int) -> None:
        """Stop one of the two until the other one has its queues and has committed; then both go on."""
        frozen, before = self.pair[number % 2].pid, self.commits()
        # A fork is there before it is a session of its own.
        await self.until("the app has its own group of processes", lambda: os.getpgid(frozen) == frozen)
        os.killpg(frozen, signal.SIGSTOP)
        await asyncio.sleep(FREEZE)
        await self.until("commits of the other app", lambda: self.commits() >= before + 2)
        before = self.commits()
        os.killpg(frozen, signal.SIGCONT)
        await self.until("commits of both", lambda: self.commits() >= before + 3)

    async def kill_jvm(self) -> None:
        """After a commit; then the same process commits again."""
        assert self.process is not None
        before, pid = self.commits(), self.process.pid
        await self.until("a commit", lambda: self.commits() > before)
        await asyncio.sleep(self.random.random())
        for child in children(pid):
            os.kill(child, signal.SIGKILL)
        before = self.commits()
        await self.until("a commit with another JVM", lambda: self.commits() > before + 1)

    async def die_at(self, point: str) -> None:
        self.start(point)
        assert self.process is not None
        process = self.process
        await self.until(f"a death at {point}", lambda: process.poll() is not None)

    def bodies(self) -> set[bytes]:
        return {row["body"] for row in self.table.rows()}


def children(pid: int) -> list[int]:
    """Processes that it has started."""
    shown = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in shown.stdout.split()]


def progress(what: str, run: Run) -> None:
    print(f"{time.monotonic() - BEGAN:6.1f} s  {what}, {run.commits()} commits", file=sys.stderr, flush=True)


async def produce(app: RocketApp, sent: set[bytes], stop: asyncio.Event) -> None:
    while not stop.is_set():
        bodies = [b"order %d" % number for number in range(len(sent), len(sent) + 10)]
        with suppress(SendUnknown):  # on a busy machine: they are sent again, and may be there at two offsets
            await app.publish_many(TOPIC, bodies)
            sent.update(bodies)
        await asyncio.sleep(0.05)


async def measure(run: Run, kills: int, points: bool, freezes: int, jvm_kills: int, within: float) -> dict[str, Any]:
    sent: set[bytes] = set()
    until = time.monotonic() + within
    killed = frozen = 0
    stop, producer = asyncio.Event(), RocketApp("producer")
    async with producer:
        async with asyncio.TaskGroup() as group:
            group.create_task(produce(producer, sent, stop))
            try:
                for point in run.table.points if points else ():
                    await run.die_at(point)
                    progress(f"died at {point}", run)
                while killed < kills and time.monotonic() < until:
                    await run.kill_at_random()
                    killed += 1
                    progress(f"kill {killed}", run)
                if jvm_kills:
                    run.start()
                for number in range(jvm_kills):
                    await run.kill_jvm()
                    progress(f"JVM kill {number + 1}", run)
                if freezes:
                    run.start()
                    run.start_second()
                while frozen < freezes and time.monotonic() < until:
                    await run.freeze(frozen)
                    frozen += 1
                    progress(f"freeze {frozen}", run)
            finally:
                stop.set()
        if not freezes and not jvm_kills:
            run.start()
        await run.until("the rest", lambda: sent <= run.bodies(), pause=0.5)
    run.kill()
    run.table.end()
    rows = run.table.rows()
    places = Counter(tuple(row[name] for name in COLUMNS[:4]) for row in rows)
    bodies = {row["body"] for row in rows}
    return {
        "format": run.how,
        "written_by": run.written_by,
        "naive": run.is_naive,
        "kills": killed,
        "points": len(run.table.points) if points else 0,
        "freezes": frozen,
        "jvm_kills": jvm_kills,
        "compactions": len(re.findall(r"files are \d+ now", run.errors.read_text())),
        "messages": len(sent),
        "commits": run.commits(),
        "races": sum(map(int, re.findall(r"(\d+) races lost", run.errors.read_text()))),
        "trimmed": sum(map(int, re.findall(r"(\d+) messages were there", run.errors.read_text()))),
        "lost": len(sent - bodies),
        "duplicates": len(rows) - len(places),
        "foreign": len(bodies - sent),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--points", action="store_true")
    parser.add_argument("--freezes", type=int, default=0)
    parser.add_argument("--jvm-kills", type=int, default=0)
    parser.add_argument("--naive", action="store_true")
    parser.add_argument("--within", type=float, default=math.inf, help="seconds after which no other kill begins")
    parser.add_argument("--compact", action="store_true")
    parser.add_argument("--format", default="delta")
    parser.add_argument("--written-by", choices=("arrow", "spark"), default="arrow")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--app", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--point", default="", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.app:
        run_app(given.format, given.point, given.naive, given.written_by)
        return 0
    os.environ["ROCKETAPP_CONSUMER__CRASH_DIR"] = ""
    os.environ["ROCKETAPP_CONSUMER__JOIN_TIMEOUT"] = "0"
    os.environ["ROCKETAPP_CLIENT__HEARTBEAT_INTERVAL"] = "0.5"
    os.environ["ROCKETAPP_SPARK__CONF"] = f"spark.driver.memory=1g,spark.driver.extraClassPath={JARS}"
    with (
        tempfile.TemporaryDirectory() as directory,
        serving(BROKER) as address,
        target(Path(directory), given.format, given.naive, given.compact) as table,
    ):
        os.environ["ROCKETAPP_CLIENT__NAME_SERVER"] = address
        os.environ["KILLS_SINK"] = json.dumps(table.options())
        run = Run(Path(directory), given.format, given.written_by, table, given.seed, given.naive)
        try:
            result = asyncio.run(measure(run, given.kills, given.points, given.freezes, given.jvm_kills, given.within))
        finally:
            if run.process is not None:
                run.kill()
    print(json.dumps(result))
    is_right = result["duplicates"] > 0 if given.naive else not (result["duplicates"] or result["foreign"])
    return 0 if is_right and not result["lost"] else 1


if __name__ == "__main__":
    sys.exit(main())
