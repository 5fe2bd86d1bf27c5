"""The same job in local mode and on a cluster of two workers, where one executor is killed while it reads.

Both are submitted by `spark-submit` as the data source's page says: the source travels by `--py-files`, and the Python
of driver and executors does not have it. The rows of both have to be equal, and each message be there once.
"""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from pyspark_rocketmq.archive import write_archive
from tests.peers.clusters import Apache, Cluster, Embedded
from tests.peers.loading import Loader, Sent
from tests.peers.waiting import wait_until
from tests.spark.standalone import BRIEF, HOME, Standalone, bare_python, environment

JOB = Path(__file__).with_name("job.py")
QUEUES, TOPIC = 4, "orders"
TASKS = 16


def fill(address: str, count: int) -> None:
    loader = Loader(address)
    loader.make_topic(TOPIC, QUEUES)
    for queue_id in range(QUEUES):
        some = (Sent(f"{queue_id}-{n}".encode().ljust(256, b"."), tag="t") for n in range(count // QUEUES))
        loader.send(TOPIC, queue_id, some, at_once=1000)
    loader.close()


class Submitted:
    """A job that runs."""

    def __init__(self, home: Path, master: str, python: Path, kind: str, name_server: str, size: int) -> None:
        self.target = home / "rows"
        home.mkdir()
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.log.level": "ERROR",
            "spark.driver.extraJavaOptions": BRIEF,
            "spark.executor.extraJavaOptions": BRIEF,
            "spark.executor.cores": "1",
            "spark.sql.session.timeZone": "UTC",
        }
        arguments = [f"--conf={name}={value}" for name, value in settings.items()]
        sizes = ["--driver-memory=1g", "--executor-memory=512m"]
        archive = home / "rocketmq.zip"
        write_archive(archive)
        job = [str(JOB), kind, name_server, TOPIC, str(self.target), str(size)]
        command = [str(HOME / "bin" / "spark-submit"), "--master", master, *sizes, *arguments]
        self._errors = home / "stderr.txt"
        self._began = time.monotonic()
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [*command, "--py-files", str(archive), *job],
                # A stream is planned by a process beside the driver, which --py-files does not reach.
                env={**environment(python), **({"PYTHONPATH": str(archive)} if kind == "stream" else {})},
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=home,
            )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def log(self) -> str:
        return self._errors.read_text(errors="replace")[-1000:]

    def files(self) -> int:
        """How many files tasks have finished: each task of a batch has a folder, and a stream writes below its name."""
        home = self.target.parent
        return len([*home.glob("rows/_temporary/0/task_*"), *home.glob("rows.stream/part-*")])

    def result(self) -> dict[str, Any]:
        """What it printed, and how long it took. Raises AssertionError when it failed."""
        out, _ = self._process.communicate(timeout=900)
        # spark-submit puts what the driver prints, errors too, on its own stdout.
        text = out.decode(errors="replace")
        assert self._process.returncode == 0, f"{text[:3000]}\n...\n{text[-500:]}\n{self.log()}"
        found: dict[str, Any] = json.loads(text.splitlines()[-1])
        return {**found, "seconds": round(time.monotonic() - self._began, 1)}

    def rows(self) -> pa.Table:
        return (
            ds.dataset(self.target, format="parquet")
            .to_table()
            .sort_by([("queue_id", "ascending"), ("queue_offset", "ascending")])
        )

    def end(self) -> None:
        if self.is_running:
            self._process.kill()
            self._process.wait(30)


def run(home: Path, kind: str, count: int, *, apache: bool) -> dict[str, Any]:
    """One kind of job, `batch` or `stream`, both ways; its figures."""
    python = bare_python(home / "python")
    broker: Cluster = Apache(home / "broker") if apache else Embedded(home / "broker")
    cluster, jobs = None, []
    try:
        fill(broker.broker_address, count)
        jobs.append(Submitted(home / "local", "local[2]", python, kind, broker.name_server, count // TASKS))
        local = jobs[-1].result()
        cluster = Standalone(home / "cluster", python)
        jobs.append(Submitted(home / "submitted", cluster.master, python, kind, broker.name_server, count // TASKS))
        killed = kill_one(cluster, jobs[-1])
        there = jobs[-1].result()
        started = cluster.started()
        ours, same = jobs[0].rows(), jobs[1].rows()
    finally:
        for job in jobs:
            job.end()
        if cluster is not None:
            cluster.stop()
        broker.stop()
    places = len({(queue, offset) for queue, offset in zip(*(ours[name].to_pylist() for name in PLACE), strict=True)})
    assert all("rocketmq.zip" in place for place in there["places"]), there["places"]
    assert started > 2, f"no executor was started in place of the killed one: {started}"
    return {
        "kind": kind,
        "broker": broker.name,
        "sent": count,
        "rows": same.num_rows,
        "distinct": places,
        "equal": same.equals(ours),
        "executors": started,
        "killed_after_files": killed,
        "local_seconds": local["seconds"],
        "cluster_seconds": there["seconds"],
    }


PLACE = ("queue_id", "queue_offset")


def kill_one(cluster: Standalone, job: Submitted) -> int:
    """SIGKILL one executor when the first files are there; return how many there were."""
    wait_until(
        lambda: job.files() >= TASKS // 8 or not job.is_running,
        within=600,
        what=lambda: f"the first files\n{job.log()}",
        every=0.02,
    )
    done = job.files()
    assert job.is_running and done < TASKS, f"the job was too fast or failed ({done} files):\n{job.log()}"
    executors = cluster.executors()
    assert len(executors) == 2, executors
    executors[0].kill()
    return done


def is_right(figures: dict[str, Any]) -> bool:
    return bool(figures["equal"]) and figures["sent"] == figures["rows"] == figures["distinct"]
