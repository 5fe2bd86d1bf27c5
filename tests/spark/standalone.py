"""A standalone Spark cluster on loopback: a master and workers, from the classes that PySpark brings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pyspark

from tests.peers.clusters import free_port
from tests.peers.waiting import wait_until

HOME = Path(pyspark.__file__).parent
BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For JVMs that live for a minute: they start sooner."""


def bare_python(directory: Path) -> Path:
    """An interpreter with everything that is installed here but the project itself, as machines of a cluster have it.

    The project is installed by .pth files, which only count in an environment's own folder of packages.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True, timeout=300)
    installed = Path(psutil.__file__).parent.parent
    (own,) = directory.glob("lib/python*/site-packages")
    (own / "installed.pth").write_text(f"{installed}\n")
    return directory / "bin" / "python"


def environment(python: Path) -> dict[str, str]:
    """That of everything of the cluster, with the driver."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    return {
        **kept,
        "SPARK_HOME": str(HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": BRIEF,
        "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        "PYSPARK_PYTHON": str(python),
        "PYSPARK_DRIVER_PYTHON": str(python),
    }


class Standalone:
    """The cluster. Every process of it is one of its own."""

    def __init__(self, directory: Path, python: Path, *, workers: int = 2) -> None:
        self._directory, self._environment = directory, environment(python)
        self._processes: list[subprocess.Popen[bytes]] = []
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        directory.mkdir(parents=True)
        web = str(free_port())
        self._workers: list[subprocess.Popen[bytes]] = []
        try:
            self._start("master", "master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", web)
            self._await("master", "I have been elected leader", 1)
            self._workers += [self._start_worker(f"worker-{number}") for number in range(workers)]
            self._await("master", "Registering worker", workers)
        except BaseException:
            self.stop()
            raise

    def _start_worker(self, name: str) -> subprocess.Popen[bytes]:
        place = str(self._directory / name)
        asked = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", place)
        return self._start(name, "worker.Worker", *asked, self.master)

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{main}", *arguments]
        with (self._directory / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, env=self._environment, stdout=log, stderr=subprocess.STDOUT)
        self._processes.append(process)
        return process

    def _log(self, name: str) -> str:
        return (self._directory / f"{name}.log").read_text(errors="replace")

    def _await(self, name: str, text: str, times: int) -> None:
        wait_until(
            lambda: self._log(name).count(text) >= times,
            within=300,
            what=lambda: f"{name} says {text!r} {times} times\n{self._log(name)[-2000:]}",
            every=0.1,
        )

    def executors(self) -> list[psutil.Process]:
        """The executors that live now."""
        found = []
        for worker in self._workers:
            for child in psutil.Process(worker.pid).children():
                try:
                    if any("CoarseGrainedExecutorBackend" in part for part in child.cmdline()):
                        found.append(child)
                except psutil.Error:
                    continue
        return found

    def started(self) -> int:
        """How many executors have been started until now."""
        return len(list(self._directory.glob("worker-*/app-*/*/stderr")))

    def stop(self) -> None:
        """Workers first, which end their executors."""
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)
