"""`python -m benchmarks.spark_kafka`: the rows of a topic of RocketMQ, and the same rows of one of Apache Kafka.

`format("rocketmq")` reads four queues of Apache RocketMQ, Spark's own connector reads four partitions of Apache Kafka,
in turn, in one session, into the noop sink. Messages have 256 bytes and a key. The environment of that Spark and its
jars are fetched into .cache when they are first needed.
"""

from __future__ import annotations

import argparse
import base64
import os
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.processes import Run, compared, measured
from benchmarks.spark_read import QUEUES, TOPIC, fill
from tests.peers import toolchain
from tests.peers.clusters import Apache, free_port
from tests.peers.waiting import wait_until
from tests.spark.local import session
from tests.spark.versions import CONTRIB, LAKE, environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VERSION = "4.0.5"
HERE = Path(__file__).parent / "peers" / "kafka"
OURS, THEIRS, GOAL = "RocketMQ, this source", "Kafka, Spark's connector", 0.8


def jars(which: str) -> Path:
    """The jars of a profile of pom.xml, fetched by Maven when they are not there."""
    place = toolchain.CACHE / "kafka" / which
    if not place.exists():
        coming = place.with_name(f"{which}.{os.getpid()}")
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={coming}"]
        subprocess.run(["mvn", "-q", "-B", f"-P{which}", "-f", str(HERE / "pom.xml"), *goal], check=True, timeout=900)
        coming.rename(place)
    return place


class Kafka:
    """One broker of Apache Kafka on loopback, which is its own controller."""

    def __init__(self, directory: Path) -> None:
        port, control = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        directory.mkdir(parents=True)
        settings = directory / "server.properties"
        settings.write_text(
            f"process.roles=broker,controller\nnode.id=1\ncontroller.quorum.voters=1@127.0.0.1:{control}\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{control}\n"
            "controller.listener.names=CONTROLLER\ninter.broker.listener.name=PLAINTEXT\n"
            f"log.dirs={directory / 'data'}\nnum.partitions={QUEUES}\noffsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n"
        )
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        java = ["java", "-Xmx1g", "-cp", f"{jars('broker')}/*"]
        format = [*java, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(settings)]
        subprocess.run(format, check=True, capture_output=True, timeout=120)
        with (directory / "log.txt").open("wb") as log:
            self._process = subprocess.Popen([*java, "kafka.Kafka", str(settings)], stdout=log, stderr=log)
        self.pid = self._process.pid
        wait_until(self._listens, within=120, what=f"Kafka listens, see {directory / 'log.txt'}")

    def _listens(self) -> bool:
        host, _, port = self.address.partition(":")
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        self._process.kill()
        self._process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_kafka", description=__doc__)
    parser.add_argument("--count", type=int, default=1_000_000, help="messages (1000000)")
    parser.add_argument("--size", type=int, default=256, help="bytes of each body (256)")
    parser.add_argument("--rounds", type=int, default=3, help="how often everything is read (3)")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if not arguments.inside:
        paths = os.pathsep.join(map(str, (toolchain.ROOT, LAKE / "src", CONTRIB / "src")))
        command = [str(environment(VERSION)), "-m", "benchmarks.spark_kafka", "--inside", *sys.argv[1:]]
        sys.exit(subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, check=False).returncode)
    with tempfile.TemporaryDirectory(prefix="rocketapp-spark-kafka-") as directory, ExitStack() as stack:
        rocketmq = Apache(Path(directory) / "rocketmq", heap="1g")
        stack.callback(rocketmq.stop)
        kafka = Kafka(Path(directory) / "kafka")
        stack.callback(kafka.stop)
        run(rocketmq, kafka, arguments)


def run(rocketmq: Apache, kafka: Kafka, arguments: argparse.Namespace) -> None:
    count, size = int(arguments.count), int(arguments.size)
    spark = session(**{"spark.jars": ",".join(map(str, sorted(jars("connector").glob("*.jar"))))})
    fill(rocketmq.broker_address, count, size)
    rows = spark.range(0, count, 1, QUEUES).selectExpr(
        "concat('k', id) AS key",
        f"unhex(substr(repeat(sha2(CAST(id AS STRING), 512), {size // 64 + 1}), 1, {2 * size})) AS value",
    )
    rows.write.format("kafka").options(**{"kafka.bootstrap.servers": kafka.address, "topic": TOPIC}).save()

    def ours() -> DataFrame:
        options = {"nameServer": rocketmq.name_server, "subscribe": TOPIC}
        return spark.read.format("rocketmq").options(**options).load()

    def theirs() -> DataFrame:
        options = {"kafka.bootstrap.servers": kafka.address, "subscribe": TOPIC}
        return spark.read.format("kafka").options(**options).load()

    def read(frame: Callable[[], DataFrame]) -> int:
        frame().write.format("noop").mode("append").save()
        return count

    every = {OURS: (ours, rocketmq.broker_pid), THEIRS: (theirs, kafka.pid)}
    for frame, _ in every.values():
        there = frame().count()
        assert there == count, f"{there} of {count} messages are read"
        read(frame)
    print(f"{count} messages of {size} B, {QUEUES} queues, Spark {spark.version}", flush=True)
    found: dict[str, list[Run]] = {}
    for _ in range(arguments.rounds):
        for name, (frame, broker) in every.items():
            found.setdefault(name, []).append(measured(partial(read, frame), broker, below=True))
            print(found[name][-1].line(name), flush=True)
    spark.stop()
    print(compared(found, OURS, THEIRS, GOAL))


if __name__ == "__main__":
    main()
