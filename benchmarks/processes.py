"""What a run with Spark costs: wall time, CPU of this process with all below it, and the memory of Spark's workers."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple

import psutil

from benchmarks.runs import Bench
from tests.peers.clusters import Cluster

_MB = 1e6


class Run(NamedTuple):
    """One run."""

    rows: int
    seconds: float
    cpu: float
    broker_cpu: float
    worker_mb: float
    """The most that one Python worker of Spark held for itself alone; 0 without any."""
    load: float

    @property
    def per_second(self) -> float:
        return self.rows / self.seconds

    @property
    def per_cpu_second(self) -> float:
        return self.rows / self.cpu

    def line(self, name: str) -> str:
        memory = f"worker {self.worker_mb:3.0f} MB  " if self.worker_mb else ""
        return (
            f"{name:24} {self.per_second:10,.0f} rows/s {self.per_cpu_second:10,.0f} rows/CPU-s  "
            f"broker {self.broker_cpu:5.1f} CPU-s  {memory}load {self.load:.1f}"
        )


def measured(work: Callable[[], int], broker: int, *, below: bool = False) -> Run:
    """Do it; it returns how many rows. `broker`: the process whose CPU stands beside; `below`: see `cpu_of`."""
    own, other = psutil.Process(), psutil.Process(broker)
    workers = _Workers(own if below else None)
    before, broker_before, began = cpu_of(own, below=below), cpu_of(other, below=False), time.perf_counter()
    rows = work()
    seconds = time.perf_counter() - began
    cpu, broker_cpu = cpu_of(own, below=below) - before, cpu_of(other, below=False) - broker_before
    return Run(rows, seconds, cpu, broker_cpu, workers.most() / _MB, os.getloadavg()[0])


def java(bench: Bench, broker: Cluster, *arguments: str) -> Run:
    """A whole Java client: its own figures leave its start out, the broker's CPU has it in."""
    printed: dict[str, Any] = {}

    def work() -> int:
        printed.update(bench.java(broker.name_server, *arguments))
        return int(printed["count"])

    whole = measured(work, broker.broker_pid)
    return whole._replace(seconds=printed["seconds"], cpu=printed["cpu_seconds"])


def compared(found: dict[str, list[Run]], ours: str, other: str, goal: float) -> str:
    """The medians of ours as multiples of those of another one."""
    by_time = median(run.per_second for run in found[ours]) / median(run.per_second for run in found[other])
    by_cpu = median(run.per_cpu_second for run in found[ours]) / median(run.per_cpu_second for run in found[other])
    return f"{ours} / {other}: {by_time:.2f} by time (goal {goal}), {by_cpu:.2f} by CPU of the client"


def cpu_of(process: psutil.Process, *, below: bool) -> float:
    """CPU seconds of a process. `below`: with those of all below it, also of those that have ended meanwhile."""
    total = 0.0
    for one in [process, *(process.children(recursive=True) if below else ())]:
        try:
            times = one.cpu_times()
        except psutil.Error:
            continue
        total += times.user + times.system + (times.children_user + times.children_system if below else 0.0)
    return total


class _Workers:
    """Looks once a second at what Spark's Python workers hold for themselves."""

    def __init__(self, parent: psutil.Process | None) -> None:
        self._parent, self._most, self._end = parent, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if parent is not None:
            self._thread.start()

    def _watch(self) -> None:
        assert self._parent is not None
        while not self._end.wait(1.0):
            self._most = max([self._most, *_held(self._parent)])

    def most(self) -> float:
        """Bytes of the largest; ends the looking."""
        if self._parent is not None:
            self._end.set()
            self._thread.join()
        return self._most


def _held(parent: psutil.Process) -> Iterator[float]:
    for child in workers_below(parent):
        try:
            yield child.memory_full_info().uss
        except psutil.Error:
            continue


def workers_below(parent: psutil.Process) -> list[psutil.Process]:
    """Spark's Python workers: Java starts one process that forks them."""
    found = []
    for child in parent.children(recursive=True):
        try:
            if "pyspark.daemon" in child.cmdline():
                found.append(child)
        except psutil.Error:
            continue
    return found
